#include "base/whole_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/temporary_folder.h"

namespace pop {
namespace {

namespace fs = std::filesystem;

class WholeFileTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string contents(const char* name) const {
    std::ostringstream out;
    out << std::ifstream(path(name)).rdbuf();
    return out.str();
  }
  auto files() const { return std::distance(fs::directory_iterator(folder_.path()), {}); }
  static void write(WholeFile& file, std::string_view text) {
    file.write({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  test::TemporaryFolder folder_;
};

TEST_F(WholeFileTest, IsThereWholeOrNotAtAll) {
  std::ofstream(path("a")) << "old";
  {
    WholeFile file(path("a"));
    write(file, "ne");
    EXPECT_EQ(contents("a"), "old");
    EXPECT_EQ(files(), 2);
  }
  EXPECT_EQ(contents("a"), "old");
  EXPECT_EQ(files(), 1);
  WholeFile file(path("a"));
  file.reserve(3);
  write(file, "new");
  file.become_whole();
  EXPECT_EQ(contents("a"), "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(WholeFileTest, HasTheUsualPermissions) {
  WholeFile(path("a")).become_whole();
  std::ofstream(path("b")) << "usual";
  EXPECT_EQ(fs::status(path("a")).permissions(), fs::status(path("b")).permissions());
  WholeFile(path("c"), 0600).become_whole();
  EXPECT_EQ(fs::status(path("c")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(WholeFileTest, WhatIsReplacedKeepsItsPermissions) {
  std::ofstream(path("a")) << "private";
  fs::permissions(path("a"), fs::perms::owner_read | fs::perms::owner_write);
  WholeFile(path("a")).become_whole();
  EXPECT_EQ(fs::status(path("a")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(WholeFileTest, ALinkStaysALink) {
  std::ofstream(path("a")) << "old";
  fs::create_symlink(path("a"), path("link"));
  WholeFile file(path("link"));
  write(file, "new");
  file.become_whole();
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(contents("a"), "new");
}

TEST_F(WholeFileTest, RefusesWhatIsNoFile) {
  EXPECT_THROW(WholeFile(folder_.path()), Error);
  EXPECT_THROW(WholeFile("/dev/null"), Error);
  EXPECT_THROW(WholeFile(path("none/a")), Error);
}

TEST_F(WholeFileTest, OnlyWhatNobodyWritesIsLeftOver) {
  const std::string mark = ".tmp-00c0ffee00c0ffee";
  std::ofstream(path("a" + mark)) << "left by a killed process";
  std::ofstream(path("b" + mark)) << "of another file";
  const std::vector<std::string> of_the_user = {"a.tmp-notes", "a.tmp-00c0ffee00c0ffee.gz", "a.tmp-00C0FFEE00C0FFEE"};
  for (const std::string& name : of_the_user) std::ofstream(path(name)) << "precious";
  WholeFile alive(path("a"));
  WholeFile::remove_left_over(path("a"));
  EXPECT_FALSE(fs::exists(path("a" + mark)));
  EXPECT_TRUE(fs::exists(path("b" + mark)));
  for (const std::string& name : of_the_user) EXPECT_TRUE(fs::exists(path(name))) << name;
  alive.become_whole();
  EXPECT_TRUE(fs::exists(path("a")));
}

}  // namespace
}  // namespace pop
