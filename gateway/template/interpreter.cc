#include "gateway/template/interpreter.h"

#include <string>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "gateway/template/python_memory.h"
#include "gateway/template/renderer_source.h"
#include "pybind11/pybind11.h"

namespace holdfast::templates {
namespace {

namespace py = pybind11;

absl::Status ToStatus(const PyStatus& status, const char* step) {
  return absl::InternalError(
      fmt::format("embedded Python: {}: {}", step,
                  status.err_msg != nullptr ? status.err_msg : "failed"));
}

// An isolated interpreter that imports from kPythonFolders and nowhere else.
absl::Status Configure(PyConfig* config) {
  config->site_import = 0;
  config->write_bytecode = 0;
  PyStatus status =
      PyConfig_SetString(config, &config->executable, kPythonProgram);
  if (PyStatus_Exception(status)) return ToStatus(status, "executable");
  config->module_search_paths_set = 1;
  for (const wchar_t* folder : kPythonFolders) {
    status = PyWideStringList_Append(&config->module_search_paths, folder);
    if (PyStatus_Exception(status)) return ToStatus(status, "search path");
  }
  return absl::OkStatus();
}

absl::Status Initialize() {
  PyPreConfig pre;
  PyPreConfig_InitIsolatedConfig(&pre);
  PyStatus status = Py_PreInitialize(&pre);
  if (PyStatus_Exception(status)) return ToStatus(status, "pre-initialize");
  InstallCountedAllocator();

  PyConfig config;
  PyConfig_InitIsolatedConfig(&config);
  absl::Status configured = Configure(&config);
  if (configured.ok()) {
    status = Py_InitializeFromConfig(&config);
    if (PyStatus_Exception(status)) configured = ToStatus(status, "initialize");
  }
  PyConfig_Clear(&config);
  return configured;
}

}  // namespace

absl::StatusOr<Interpreter*> Interpreter::Get() {
  // Never destroyed: threads may still render while statics go.
  static const auto* const started = new absl::StatusOr<Interpreter*>(Start());
  return *started;
}

absl::StatusOr<Interpreter*> Interpreter::Start() {
  absl::Status status = Initialize();
  if (!status.ok()) return status;
  auto* const interpreter = new Interpreter;
  status = interpreter->LoadRenderer();
  PyEval_SaveThread();  // every user takes the GIL for itself
  if (!status.ok()) return status;
  return interpreter;
}

absl::Status Interpreter::LoadRenderer() {
  try {
    const auto module =
        py::reinterpret_steal<py::object>(PyModule_New("holdfast_renderer"));
    py::dict scope = module.attr("__dict__");
    scope["__builtins__"] =
        py::reinterpret_borrow<py::object>(PyEval_GetBuiltins());
    const auto result = py::reinterpret_steal<py::object>(
        PyRun_String(kRendererSource, Py_file_input, scope.ptr(), scope.ptr()));
    if (!result) throw py::error_already_set();
    const auto take = [&scope](const char* name) {
      return py::object(scope[name]).release().ptr();
    };
    compile_template_ = take("compile_template");
    render_ = take("render");
    render_error_ = take("RenderError");
    render_timeout_ = take("RenderTimeout");
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(
        fmt::format("embedded Python: load Jinja2: {}", error.what()));
  }
}

bool Interpreter::Acquire(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (!released_.wait_until(lock, deadline, [this] { return !busy_; })) {
    return false;
  }
  busy_ = true;
  return true;
}

void Interpreter::Release() {
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
  }
  released_.notify_one();
}

}  // namespace holdfast::templates
