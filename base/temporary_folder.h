// For tests.
#pragma once
#include <cstdlib>
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

 private:
  std::string path_;
};

}  // namespace pop::test
