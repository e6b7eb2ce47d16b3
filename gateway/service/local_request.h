// Whether a request was made on this machine.
#ifndef HOLDFAST_GATEWAY_SERVICE_LOCAL_REQUEST_H_
#define HOLDFAST_GATEWAY_SERVICE_LOCAL_REQUEST_H_

#include <string_view>

#include "gateway/http/message.h"

namespace holdfast::gateway {

// A name or address of this machine's own, with or without a port.
bool IsLocalHost(std::string_view host);

// Of a page that a browser loaded from this machine.
bool IsLocalOrigin(std::string_view origin);

// Over loopback, and neither passed on by a proxy nor made by a web page from
// elsewhere: a browser on this machine sends those here too, and names their
// site as the origin or, where they were loaded under a name that points here,
// as the host.
bool IsFromThisMachine(const http::Request& request);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_LOCAL_REQUEST_H_
