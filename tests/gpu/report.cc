#include "tests/gpu/report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "kernels/cuda/ipc/device_facts.h"

namespace holdfast::gpu_check {
namespace {

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kFailed:
      return "FAILED";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kMeasured:
      return "measured";
  }
  return "";
}

}  // namespace

void Report::Add(std::string part, std::string name, Outcome outcome,
                 std::string detail) {
  // As it comes, for who watches.
  std::printf("%-10s %-8s %s: %s\n", part.c_str(), OutcomeName(outcome),
              name.c_str(), detail.c_str());
  std::fflush(stdout);
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> took = now - std::exchange(last_, now);
  lines_.push_back({std::move(part), std::move(name), outcome,
                    std::move(detail), took.count()});
}

bool Report::failed() const {
  return std::any_of(lines_.begin(), lines_.end(), [](const Line& line) {
    return line.outcome == Outcome::kFailed;
  });
}

std::string Report::Table() const {
  std::size_t width = 0;
  for (const Line& line : lines_) width = std::max(width, line.name.size());
  std::string table;
  for (const Line& line : lines_) {
    std::string row = line.part;
    row.resize(std::max<std::size_t>(row.size(), 10), ' ');
    row += " " + line.name;
    row.append(width - line.name.size() + 1, ' ');
    row += OutcomeName(line.outcome);
    row += "  " + line.detail;
    table += row + "\n";
  }
  return table;
}

// Of each part: its lines by outcome, and how long they took.
std::string Report::PartsJson() const {
  struct Part {
    int lines[4] = {};
    double seconds = 0;
  };
  std::map<std::string, Part> parts;
  for (const Line& line : lines_) {
    Part& part = parts[line.part];
    ++part.lines[static_cast<int>(line.outcome)];
    part.seconds += line.seconds;
  }
  std::string json;
  for (const auto& [name, part] : parts) {
    json += std::string(json.empty() ? "\n" : ",\n") +
            kernels::cuda::JsonString(name) + ": {";
    for (const Outcome outcome : {Outcome::kOk, Outcome::kFailed,
                                  Outcome::kRefused, Outcome::kMeasured}) {
      json += kernels::cuda::JsonString(OutcomeName(outcome)) + ": " +
              std::to_string(part.lines[static_cast<int>(outcome)]) + ", ";
    }
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%.1f", part.seconds);
    json += std::string("\"seconds\": ") + seconds + "}";
  }
  return json;
}

std::string Report::Json(const std::string& facts) const {
  using kernels::cuda::JsonString;
  std::string json = "{\n\"failed\": ";
  json += failed() ? "true" : "false";
  json += ",\n\"machine\": " + facts + ",\n\"parts\": {" + PartsJson() +
          "\n},\n\"lines\": [";
  const char* between = "\n";
  for (const Line& line : lines_) {
    json += std::string(between) + "{\"part\": " + JsonString(line.part) +
            ", \"name\": " + JsonString(line.name) +
            ", \"outcome\": " + JsonString(OutcomeName(line.outcome)) +
            ", \"detail\": " + JsonString(line.detail) + "}";
    between = ",\n";
  }
  return json + "\n]\n}\n";
}

}  // namespace holdfast::gpu_check
