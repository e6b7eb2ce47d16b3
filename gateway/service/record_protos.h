// Session records between the wire and shared/align.
#ifndef HOLDFAST_GATEWAY_SERVICE_RECORD_PROTOS_H_
#define HOLDFAST_GATEWAY_SERVICE_RECORD_PROTOS_H_

#include "holdfast/v1/record.pb.h"
#include "shared/align/record.h"

namespace holdfast::gateway {

// Turns whose positions cannot be are left out, with all behind them: records
// may come from a file.
align::Record FromProto(const v1::SessionRecord& proto);
void ToProto(const align::Turn& turn, v1::SentTurn* proto);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_RECORD_PROTOS_H_
