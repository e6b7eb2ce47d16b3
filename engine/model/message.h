// Joins the parts of an error message.
#ifndef HOLDFAST_ENGINE_MODEL_MESSAGE_H_
#define HOLDFAST_ENGINE_MODEL_MESSAGE_H_

#include <sstream>
#include <string>

namespace holdfast::model {

template <typename... Parts>
std::string Message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_MESSAGE_H_
