// Which build this is.
#pragma once

namespace pop {

struct VersionInfo {
  const char* version;     // "0.1.0", from project() in the root CMakeLists.txt
  const char* commit;      // the first 12 digits of the git commit when the build was configured, or "unknown"
  const char* compiler;    // "GNU 12.2.0"
  const char* build_type;  // "Release"
};

VersionInfo version_info();

}  // namespace pop
