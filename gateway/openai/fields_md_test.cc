// FIELDS.md says what the parser does: every example of the page is sent.
#include <fstream>
#include <string>
#include <vector>

#include "gateway/openai/json.h"
#include "gateway/openai/request.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::openai {
namespace {

struct Row {
  std::string section;
  std::string field;
  std::string endpoint;
  Json example;
};

// The text between the first two backticks of a cell.
std::string Code(const std::string& cell) {
  const std::size_t begin = cell.find('`');
  const std::size_t end = cell.find('`', begin + 1);
  return end == std::string::npos ? ""
                                  : cell.substr(begin + 1, end - begin - 1);
}

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t at = 1; at < line.size();) {
    const std::size_t end = line.find(" |", at);
    if (end == std::string::npos) break;
    cells.push_back(line.substr(at, end - at));
    at = end + 2;
  }
  return cells;
}

std::vector<Row> ReadRows() {
  std::vector<Row> rows;
  std::ifstream file("gateway/openai/FIELDS.md");
  std::string section;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) section = line.substr(3);
    if (!line.starts_with("| `")) continue;
    const std::vector<std::string> cells = Cells(line);
    EXPECT_GE(cells.size(), 3) << line;
    ApiOr<Json> example = ParseJson(Code(cells[2]));
    EXPECT_TRUE(example.ok()) << line;
    if (!example.ok()) continue;
    rows.push_back({section, Code(cells[0]), cells[1].substr(1), *example});
  }
  return rows;
}

std::optional<ApiError> Send(const Row& row, bool chat) {
  Json body = chat ? Json{{"messages",
                           Json::array({{{"role", "user"}, {"content", "x"}}})}}
                   : Json{{"prompt", "x"}};
  body.update(row.example);
  const ServerFacts facts{"served-name", 100, true};
  if (chat) {
    const auto request = ParseChatRequest(body, facts);
    return request.ok() ? std::nullopt : std::optional(request.error());
  }
  const auto request = ParseCompletionRequest(body, facts);
  return request.ok() ? std::nullopt : std::optional(request.error());
}

TEST(FieldsMdTest, EveryExampleDoesWhatThePageSays) {
  const std::vector<Row> rows = ReadRows();
  int refused = 0;
  for (const Row& row : rows) {
    for (const bool chat : {true, false}) {
      if (row.endpoint == (chat ? "completions" : "chat")) continue;
      const std::optional<ApiError> error = Send(row, chat);
      const std::string what = row.field + " " + row.example.dump();
      if (row.section != "Refused") {
        EXPECT_FALSE(error.has_value()) << what << ": " << error->message;
        continue;
      }
      ++refused;
      ASSERT_TRUE(error.has_value()) << what;
      EXPECT_EQ(error->http_status, 400) << what;
      EXPECT_EQ(error->param, row.field) << what;
      EXPECT_THAT(error->message, ::testing::HasSubstr(row.field));
    }
  }
  EXPECT_GT(rows.size(), 80);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace holdfast::openai
