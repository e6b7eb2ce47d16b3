#include "tests/gpu/report.h"

#include <algorithm>
#include <cstdio>
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
  lines_.push_back(
      {std::move(part), std::move(name), outcome, std::move(detail)});
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

std::string Report::Json(const std::string& facts) const {
  using kernels::cuda::JsonString;
  std::string json = "{\n\"failed\": ";
  json += failed() ? "true" : "false";
  json += ",\n\"machine\": " + facts + ",\n\"lines\": [";
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
