#include "gateway/template/chat_template.h"

#include <exception>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "gateway/template/interpreter.h"
#include "gateway/template/python_memory.h"
#include "gateway/template/render_deadline.h"
#include "pybind11/pybind11.h"

namespace holdfast::templates {
namespace {

namespace py = pybind11;
using Clock = RenderDeadline::Clock;

// The interpreter for one call, within its limits.
class Turn {
 public:
  Turn(Interpreter* interpreter, const RenderLimits& limits)
      : interpreter_(interpreter),
        deadline_(Clock::now() + limits.deadline),
        acquired_(interpreter->Acquire(deadline_)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (acquired_) interpreter_->Release();
  }
  bool acquired() const { return acquired_; }
  Clock::time_point deadline() const { return deadline_; }

 private:
  Interpreter* const interpreter_;
  const Clock::time_point deadline_;
  const bool acquired_;
};

absl::Status TooLong(const RenderLimits& limits) {
  return absl::DeadlineExceededError(fmt::format(
      "the chat template took over {} ms", limits.deadline.count()));
}

absl::Status TooBig(const RenderLimits& limits) {
  return absl::ResourceExhaustedError(fmt::format(
      "the chat template needs over {} bytes of memory", limits.memory_bytes));
}

// The GIL is held, and `error` was thrown by Python code.
absl::Status ToStatus(const py::error_already_set& error,
                      const Interpreter& interpreter,
                      const RenderLimits& limits) {
  if (error.matches(interpreter.render_timeout())) return TooLong(limits);
  if (error.matches(PyExc_MemoryError)) return TooBig(limits);
  if (error.matches(interpreter.render_error())) {
    return absl::InvalidArgumentError(
        fmt::format("chat template: {}", std::string(py::str(error.value()))));
  }
  return absl::InvalidArgumentError(
      fmt::format("chat template: {}", error.what()));
}

// Calls `function` and hands its result to `take`, all under the limits. The
// GIL is not held before or after, so no Python object may leave `take`.
template <typename Take>
absl::Status Call(Interpreter& interpreter, const RenderLimits& limits,
                  PyObject* function, PyObject* first, const std::string& text,
                  const Take& take) {
  const Turn turn(&interpreter, limits);
  if (!turn.acquired()) return TooLong(limits);
  const GilLock gil;
  try {
    const MemoryBudget budget(limits.memory_bytes);
    py::object result;
    {
      const RenderDeadline deadline(turn.deadline(),
                                    interpreter.render_timeout());
      const py::handle callable(function);
      const py::str argument(text);
      result = first == nullptr ? callable(argument)
                                : callable(py::handle(first), argument);
    }
    return take(std::move(result));
  } catch (const py::error_already_set& error) {
    return ToStatus(error, interpreter, limits);
  } catch (const std::exception& error) {
    return absl::InternalError(fmt::format("chat template: {}", error.what()));
  }
}

class JinjaTemplate final : public ChatTemplate {
 public:
  // Takes over the reference to `compiled`.
  JinjaTemplate(Interpreter* interpreter, PyObject* compiled,
                SpecialTokens tokens, const RenderLimits& limits)
      : interpreter_(interpreter),
        compiled_(compiled),
        tokens_(std::move(tokens)),
        limits_(limits) {}

  ~JinjaTemplate() override {
    const GilLock gil;
    Py_DECREF(compiled_);
  }

  absl::StatusOr<std::string> Render(const RenderInput& input) const override {
    absl::StatusOr<std::string> variables = Variables(input);
    if (!variables.ok()) return variables.status();
    std::string text;
    const absl::Status status =
        Call(*interpreter_, limits_, interpreter_->render(), compiled_,
             *variables, [&](py::object result) {
               return TakeText(result, limits_.output_bytes, &text);
             });
    if (!status.ok()) return status;
    return text;
  }

 private:
  // Named arguments of the template, as JSON text: Python's own reader makes
  // the objects that tojson prints.
  absl::StatusOr<std::string> Variables(const RenderInput& input) const {
    Json variables = {{"bos_token", tokens_.bos},
                      {"eos_token", tokens_.eos},
                      {"pad_token", tokens_.pad},
                      {"unk_token", tokens_.unk}};
    // A token that the model lacks is undefined in a template, not empty.
    for (auto it = variables.begin(); it != variables.end();) {
      it = it->get_ref<const std::string&>().empty() ? variables.erase(it)
                                                     : std::next(it);
    }
    if (input.kwargs.is_object()) {
      for (const auto& [key, value] : input.kwargs.items()) {
        if (key == "messages" || key == "tools" || key == "documents" ||
            key == "add_generation_prompt") {
          return absl::InvalidArgumentError(
              fmt::format("chat template argument {} is taken from the "
                          "request itself",
                          key));
        }
        variables[key] = value;
      }
    }
    variables["messages"] = input.messages;
    variables["tools"] = input.tools;
    variables["documents"] = input.documents;
    variables["add_generation_prompt"] = input.add_generation_prompt;
    return variables.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  static absl::Status TakeText(const py::object& result,
                               std::size_t output_bytes, std::string* text) {
    Py_ssize_t bytes = 0;
    const char* data = PyUnicode_AsUTF8AndSize(result.ptr(), &bytes);
    if (data == nullptr) throw py::error_already_set();
    if (static_cast<std::size_t>(bytes) > output_bytes) {
      return absl::ResourceExhaustedError(
          fmt::format("the chat template wrote {} bytes, over the limit of {}",
                      bytes, output_bytes));
    }
    text->assign(data, static_cast<std::size_t>(bytes));
    return absl::OkStatus();
  }

  Interpreter* const interpreter_;
  PyObject* const compiled_;
  const SpecialTokens tokens_;
  const RenderLimits limits_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(
    const std::string& source, const SpecialTokens& tokens,
    const RenderLimits& limits) {
  if (source.empty()) {
    return absl::InvalidArgumentError("the model has no chat template");
  }
  absl::StatusOr<Interpreter*> interpreter = Interpreter::Get();
  if (!interpreter.ok()) return interpreter.status();
  PyObject* compiled = nullptr;
  const absl::Status status =
      Call(**interpreter, limits, (*interpreter)->compile_template(), nullptr,
           source, [&compiled](py::object result) {
             compiled = result.release().ptr();
             return absl::OkStatus();
           });
  if (!status.ok()) return status;
  return std::make_unique<JinjaTemplate>(*interpreter, compiled, tokens,
                                         limits);
}

}  // namespace holdfast::templates
