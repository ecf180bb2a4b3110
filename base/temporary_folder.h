// For tests.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>

namespace pop::test {

// A folder that goes with the test program's end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char pattern[] = "/tmp/pop-test-XXXXXX";
    path_ = mkdtemp(pattern);
  }
  ~TemporaryFolder() { std::system(("rm -r '" + path_ + "'").c_str()); }
  const std::string& path() const { return path_; }
  // A file in it; returns its path.
  std::string write(const std::string& name, std::span<const uint8_t> bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

}  // namespace pop::test
