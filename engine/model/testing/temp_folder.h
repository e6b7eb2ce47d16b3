// A folder that lives as long as this object.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_TEMP_FOLDER_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_TEMP_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace holdfast::model::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "holdfast-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_TEMP_FOLDER_H_
