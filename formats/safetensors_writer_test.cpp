#include "formats/safetensors_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "formats/safetensors.h"

namespace pop {
namespace {

Fill bytes_from(uint8_t first) {
  return [first](uint64_t offset, std::span<uint8_t> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = uint8_t(first + offset + i);
  };
}

// The form of the format's own description: length, JSON padded with blanks to a multiple of eight, the data.
TEST(SafetensorsWriter, WritesTheFormat) {
  const test::TemporaryFolder folder;
  SafetensorsWriter out;
  out.add("b", DType::F32, {1, 2}, bytes_from(10));
  out.add("a", DType::BF16, {3}, bytes_from(50));
  out.write(folder.path() + "/m.safetensors");
  std::ostringstream text;
  text << std::ifstream(folder.path() + "/m.safetensors", std::ios::binary).rdbuf();
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}})";
  const size_t padded = (header.size() + 7) / 8 * 8;
  std::string expected = {char(padded), 0, 0, 0, 0, 0, 0, 0};
  expected += header + std::string(padded - header.size(), ' ');
  for (int i = 0; i < 8; ++i) expected += char(10 + i);
  for (int i = 0; i < 6; ++i) expected += char(50 + i);
  EXPECT_EQ(text.str(), expected);
  const std::string found = text.str();
  EXPECT_EQ(parse_safetensors({reinterpret_cast<const uint8_t*>(found.data()), found.size()}, "m").size(), 2u);
}

TEST(SafetensorsWriter, RefusesWhatTheReaderWould) {
  SafetensorsWriter out;
  out.add("a", DType::F16, {2}, bytes_from(0));
  EXPECT_THROW(out.add("a", DType::F16, {2}, bytes_from(0)), Error);
  EXPECT_THROW(out.add("", DType::F16, {2}, bytes_from(0)), Error);
  EXPECT_THROW(out.add("__metadata__", DType::F16, {2}, bytes_from(0)), Error);
  EXPECT_THROW(out.add("b", DType::Q8_0, {32}, bytes_from(0)), Error);
  EXPECT_THROW(out.add("b", DType::F16, {}, bytes_from(0)), Error);
  EXPECT_THROW(out.add("b", DType::F16, {0}, bytes_from(0)), Error);
  EXPECT_THROW(out.add("b", DType::F16, {int64_t(1) << 62, 4}, bytes_from(0)), Error);
}

TEST(SafetensorsWriter, LeavesNothingWhereDataCannotBeMade) {
  const test::TemporaryFolder folder;
  SafetensorsWriter out;
  out.add("a", DType::F32, {2}, [](uint64_t, std::span<uint8_t>) { fail("stopped"); });
  EXPECT_THROW(out.write(folder.path() + "/m.safetensors"), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace pop
