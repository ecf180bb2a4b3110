// Files as they should be: values, tensors, split models, paths, sizes; and the writer against the `gguf` package.
#include "formats/gguf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "formats/gguf_test_support.h"
#include "formats/gguf_writer.h"

namespace pop {
namespace {

namespace fs = std::filesystem;
using test::Bytes;

constexpr const char* kGolden = "formats/testdata/package.gguf";  // made by make_gguf_golden.py there

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::vector<uint8_t>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
}

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "expected '" << part << "' in: " << text;
}

struct TempFolder {
  TempFolder() : path(fs::temp_directory_path() / fmt::format("pop-gguf-test-{}", ::getpid())) {
    fs::create_directories(path);
  }
  ~TempFolder() { fs::remove_all(path); }
  fs::path path;
};

void expect_golden_values(const GgufFile& f) {
  EXPECT_EQ(f.get_string("general.architecture"), "llama");
  EXPECT_EQ(f.get_u64("t.u8"), 200u);
  EXPECT_EQ(f.get_i64("t.i8"), -100);
  EXPECT_EQ(f.get_u64("t.u16"), 60000u);
  EXPECT_EQ(f.get_i64("t.i16"), -30000);
  EXPECT_EQ(f.get_u64("t.u32"), 4000000000u);
  EXPECT_EQ(f.get_i64("t.i32"), -2000000000);
  EXPECT_EQ(f.get_f64("t.f32"), static_cast<double>(0.1f));
  EXPECT_EQ(f.get_bool("t.bool"), true);
  EXPECT_EQ(f.get_string("t.string"), "Grüße, 漢字\n");
  EXPECT_EQ(f.get_u64("t.u64"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(f.get_i64("t.i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(f.get_f64("t.f64"), 0.1);
  EXPECT_EQ(f.get_strings("t.strings"), (std::vector<std::string>{"a", "", "ccc"}));
  EXPECT_EQ(f.get_i32s("t.ints"), (std::vector<int32_t>{1, -2, 3}));
  EXPECT_EQ(f.get_ints("t.ints", 3), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(f.get_floats("t.floats"), (std::vector<float>{0.5f, -1.25f}));
  EXPECT_EQ(f.get_bools("t.bools"), (std::vector<bool>{true, false, true}));
  const std::vector<GgufValue> nested = f.find_key("t.nested")->elements();
  ASSERT_EQ(nested.size(), 2u);
  EXPECT_EQ(nested[0].count(), 2u);
  EXPECT_EQ(nested[1].elements()[0].as_i64(), 3);
}

TEST(Gguf, ReadsWhatTheGgufPackageWrote) {
  const GgufFile f(kGolden);
  EXPECT_EQ(f.version(), 3u);
  EXPECT_EQ(f.parts(), 1);
  EXPECT_EQ(f.file_bytes(), fs::file_size(kGolden));
  EXPECT_EQ(f.keys().size(), 19u);
  EXPECT_EQ(f.keys()[1].name, "t.u8");
  expect_golden_values(f);
  ASSERT_EQ(f.tensors().size(), 4u);
  EXPECT_EQ(f.tensor_bytes(), 20u + 12u + 96u + 68u);

  const RawTensor matrix = f.tensor("matrix", {2, 3}, {DType::F32, DType::F16});
  std::vector<float> values(6);
  dequantize(matrix.type, matrix.data.data(), values.data(), 6);
  EXPECT_EQ(values, (std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1, 1.25f}));
  EXPECT_EQ(f.tensor("cube").shape, (std::vector<int64_t>{1, 2, 3, 4}));
  const RawTensor quantised = f.tensor("quantised", {2, 32});
  EXPECT_EQ(quantised.type, DType::Q8_0);
  EXPECT_EQ(quantised.data.size(), 68u);
}

TEST(Gguf, ReadsVersion2) {
  std::vector<uint8_t> bytes = read_file(kGolden);
  bytes[4] = 2;  // the little-endian layout is the same
  const GgufFile f = GgufFile::from_bytes(bytes, "v2.gguf");
  EXPECT_EQ(f.version(), 2u);
  expect_golden_values(f);
}

TEST(Gguf, ShowsValuesForPeople) {
  const GgufFile f(kGolden);
  EXPECT_EQ(f.find_key("t.string")->text(), "'Grüße, 漢字\\x0a'");
  EXPECT_EQ(f.find_key("t.i64")->text(), "-9223372036854775808");
  EXPECT_EQ(f.find_key("t.f32")->text(), "0.1");
  EXPECT_EQ(f.find_key("t.nested")->text(), "[[1, 2], [3]]");
  EXPECT_EQ(f.find_key("t.strings")->text(5), "['a', '', ... 3 in all]");
  EXPECT_EQ(f.find_key("t.strings")->type_text(), "Array of 3 String");
}

TEST(Gguf, GettersSayWhatTheyExpectedAndFound) {
  const GgufFile f(kGolden);
  EXPECT_EQ(f.get_u64("absent", 7), 7u);
  EXPECT_EQ(f.get_string("absent", "x"), "x");
  EXPECT_EQ(f.find_bool("absent"), std::nullopt);
  EXPECT_EQ(
      error_of([&] { f.get_u64("llama.block_count"); }),
      std::string(kGolden) + ": metadata key 'llama.block_count' is missing: expected an integer from 0 to 2^64-1");
  EXPECT_EQ(error_of([&] { f.get_u64("t.i8"); }),
            std::string(kGolden) + ": metadata key 't.i8': expected an integer from 0 to 2^64-1, found -100 (I8)");
  expect_contains(error_of([&] { f.get_i64("t.u64"); }), "found 18446744073709551615 (U64)");
  expect_contains(error_of([&] { f.get_u64("t.string", 7); }), "found 'Gr");  // a wrong type is no missing key
  expect_contains(error_of([&] { f.get_f64("t.i8"); }), "expected an F32 or F64, found -100 (I8)");
  expect_contains(error_of([&] { f.get_bool("t.u8"); }), "expected a Bool");
  expect_contains(error_of([&] { f.get_string("t.strings"); }), "expected a String, found ['a'");
  expect_contains(error_of([&] { f.get_strings("t.ints"); }), "expected an Array of String");
  expect_contains(error_of([&] { f.get_floats("t.ints"); }), "expected an Array of F32");
  expect_contains(error_of([&] { f.get_i32s("t.floats"); }), "expected an Array of I32");
  expect_contains(error_of([&] { f.get_ints("t.bools"); }), "expected an Array of integers");
  expect_contains(error_of([&] { f.get_bools("t.u8"); }), "expected an Array of Bool");
  expect_contains(error_of([&] { f.get_i32s("t.ints", 4); }),
                  "expected an Array of 4 I32, found [1, -2, 3] (Array of 3 I32)");
}

TEST(Gguf, TensorGetterSaysWhatItExpectedAndFound) {
  const GgufFile f(kGolden);
  EXPECT_EQ(error_of([&] {
              f.tensor("blk.0.ffn_up.weight", {1536, 576}, {DType::F32});
            }),
            std::string(kGolden) + ": tensor 'blk.0.ffn_up.weight' is missing: expected [1536, 576] of F32");
  EXPECT_EQ(error_of([&] {
              f.tensor("matrix", {3, 2});
            }),
            std::string(kGolden) + ": tensor 'matrix': expected [3, 2], found [2, 3] of F16");
  EXPECT_EQ(error_of([&] {
              f.tensor("matrix", {2, 3}, {DType::F32, DType::Q4_0});
            }),
            std::string(kGolden) + ": tensor 'matrix': expected [2, 3] of F32 or Q4_0, found [2, 3] of F16");
  EXPECT_EQ(f.find("nothing"), nullptr);
}

TEST(Gguf, UnknownTensorTypesAreErrorsOnlyWhenAskedFor) {
  Bytes b = test::gguf_head(3, 0);
  b.tensor("known", {2}, 0, 0).tensor("iq2", {256}, 16, 32).tensor("new", {7}, 99, 64).pad(32, 96);
  const GgufFile f = GgufFile::from_bytes(b.bytes, "x.gguf");
  EXPECT_EQ(f.tensor("known").data.size(), 8u);
  EXPECT_EQ(f.find("iq2")->type, std::nullopt);
  EXPECT_EQ(error_of([&] { f.tensor("iq2"); }),
            "x.gguf: tensor 'iq2': expected a tensor type this program can read, found IQ2_XXS (type 16)");
  expect_contains(error_of([&] { f.tensor("new", {7}, {DType::F32}); }), "found type 99");
}

GgufWriter golden_writer() {
  GgufWriter w(64);
  w.set_string("general.architecture", "llama");
  const auto payload = [&w](const char* key, GgufType type, const Bytes& b) { w.set_payload(key, type, b.bytes); };
  payload("t.u8", GgufType::U8, Bytes().put<uint8_t>(200));
  payload("t.i8", GgufType::I8, Bytes().put<int8_t>(-100));
  payload("t.u16", GgufType::U16, Bytes().put<uint16_t>(60000));
  payload("t.i16", GgufType::I16, Bytes().put<int16_t>(-30000));
  w.set_u32("t.u32", 4000000000u);
  w.set_i32("t.i32", -2000000000);
  w.set_f32("t.f32", 0.1f);
  w.set_bool("t.bool", true);
  w.set_string("t.string", "Grüße, 漢字\n");
  w.set_u64("t.u64", std::numeric_limits<uint64_t>::max());
  payload("t.i64", GgufType::I64, Bytes().put(std::numeric_limits<int64_t>::min()));
  payload("t.f64", GgufType::F64, Bytes().put(0.1));
  w.set_strings("t.strings", std::vector<std::string>{"a", "", "ccc"});
  w.set_i32s("t.ints", std::vector<int32_t>{1, -2, 3});
  w.set_f32s("t.floats", std::vector<float>{0.5f, -1.25f});
  payload("t.bools", GgufType::Array, Bytes().u32(7).u64(3).raw({"\1\0\1", 3}));
  payload("t.nested", GgufType::Array, Bytes().u32(9).u64(2).u32(5).u64(2).u32(1).u32(2).u32(5).u64(1).u32(3));
  std::vector<float> values(64);
  for (int i = 0; i < 64; ++i) values[size_t(i)] = static_cast<float>(i);
  w.add_tensor_f32("vector", DType::F32, {5}, std::span(values).first(5));
  std::vector<float> quarters(6), signed_values(64);
  for (int i = 0; i < 6; ++i) quarters[size_t(i)] = static_cast<float>(i) / 4;
  for (int i = 0; i < 64; ++i) signed_values[size_t(i)] = static_cast<float>(i - 32);
  w.add_tensor_f32("matrix", DType::F16, {2, 3}, quarters);
  w.add_tensor_f32("cube", DType::F32, {1, 2, 3, 4}, std::span(values).first(24));
  w.add_tensor_f32("quantised", DType::Q8_0, {2, 32}, signed_values);
  return w;
}

TEST(GgufWriter, WritesTheBytesTheGgufPackageWrites) {
  const std::vector<uint8_t> expected = read_file(kGolden);
  EXPECT_EQ(golden_writer().to_bytes(), expected);
  const TempFolder temp;
  golden_writer().write(temp.path / "out.gguf");
  EXPECT_EQ(read_file(temp.path / "out.gguf"), expected);
}

TEST(GgufWriter, RefusesWhatTheReaderWouldRefuse) {
  EXPECT_THROW(GgufWriter(0), Error);
  EXPECT_THROW(GgufWriter(48), Error);
  EXPECT_THROW(GgufWriter(1u << 20), Error);
  GgufWriter w;
  w.set_u32("a", 1);
  EXPECT_THROW(w.set_f32("a", 1), Error);
  EXPECT_THROW(w.set_u32("", 1), Error);
  EXPECT_THROW(w.set_u32("general.alignment", 64), Error);
  w.add_tensor("t", DType::F32, {2}, std::vector<uint8_t>(8));
  EXPECT_THROW(w.add_tensor("t", DType::F32, {2}, std::vector<uint8_t>(8)), Error);
  EXPECT_THROW(w.add_tensor("", DType::F32, {2}, std::vector<uint8_t>(8)), Error);
  EXPECT_THROW(w.add_tensor("short", DType::F32, {2}, std::vector<uint8_t>(7)), Error);
  EXPECT_THROW(w.add_tensor("none", DType::F32, {}, {}), Error);
  EXPECT_THROW(w.add_tensor("zero", DType::F32, {0}, {}), Error);
  EXPECT_THROW(w.add_tensor("five", DType::F32, {1, 1, 1, 1, 1}, std::vector<uint8_t>(4)), Error);
  EXPECT_THROW(w.add_tensor("part", DType::Q4_0, {16}, std::vector<uint8_t>(9)), Error);
  EXPECT_THROW(w.write("/nonexistent-folder/x.gguf"), Error);
  EXPECT_EQ(GgufFile::from_bytes(w.to_bytes(), "x.gguf").tensors().size(), 1u);
}

// One part of a toy split model of three: tensor "t<index>" of one float, `index`.
std::vector<uint8_t> split_part(int index, int count = 3, int32_t tensors = 3) {
  GgufWriter w;
  if (index == 0) w.set_string("general.architecture", "llama");
  w.set_payload("split.no", GgufType::U16, Bytes().put(static_cast<uint16_t>(index)).bytes);
  w.set_payload("split.count", GgufType::U16, Bytes().put(static_cast<uint16_t>(count)).bytes);
  w.set_i32("split.tensors.count", tensors);
  const std::vector<float> value = {static_cast<float>(index)};
  w.add_tensor_f32(fmt::format("t{}", index), DType::F32, {1}, value);
  return w.to_bytes();
}

struct SplitModel : TempFolder {
  SplitModel() {
    for (int i = 0; i < 3; ++i) write_file(part(i + 1), split_part(i));
  }
  std::string part(int i) const { return path / fmt::format("toy-{:05}-of-00003.gguf", i); }
};

TEST(GgufSplit, TheFirstPartOpensAll) {
  const SplitModel model;
  const GgufFile f(model.part(1));
  EXPECT_EQ(f.parts(), 3);
  EXPECT_EQ(f.tensors().size(), 3u);
  EXPECT_EQ(f.file_bytes(), fs::file_size(model.part(1)) + fs::file_size(model.part(2)) + fs::file_size(model.part(3)));
  for (int i = 0; i < 3; ++i) {
    const RawTensor t = f.tensor(fmt::format("t{}", i), {1}, {DType::F32});
    float value = -1;
    dequantize(t.type, t.data.data(), &value, 1);
    EXPECT_EQ(value, static_cast<float>(i));
  }
}

TEST(GgufSplit, AnotherPartAloneNamesTheFirst) {  // G19
  const SplitModel model;
  const std::string part_2 = error_of([&] { GgufFile(model.part(2)); });
  EXPECT_EQ(part_2, model.part(2) + ": this is part 2 of 3 of a split model; open the first part, " + model.part(1));
  fs::remove(model.part(1));
  expect_contains(error_of([&] { GgufFile(model.part(2)); }), "(missing: " + model.part(1) + ")");
}

TEST(GgufSplit, MissingPartsAreNamed) {  // G19
  const SplitModel model;
  fs::remove(model.part(3));
  EXPECT_EQ(error_of([&] { GgufFile(model.part(1)); }),
            model.part(1) + ": a split model of 3 parts; missing: " + model.part(3));
}

TEST(GgufSplit, PartsThatDoNotBelongTogetherAreRefused) {
  const SplitModel model;
  write_file(model.part(3), split_part(1));
  expect_contains(error_of([&] { GgufFile(model.part(1)); }), "expected part 3 of 3 by its name, found part 2 of 3");
  write_file(model.part(3), split_part(2, 4));
  expect_contains(error_of([&] { GgufFile(model.part(1)); }), "found part 3 of 4 by its metadata");
  write_file(model.part(3), split_part(2));
  write_file(model.part(1), split_part(0, 3, 9));
  expect_contains(error_of([&] { GgufFile(model.part(1)); }),
                  "expected 9 tensors in all parts (split.tensors.count), found 3");
  fs::copy_file(model.part(2), model.path / "renamed.gguf");
  expect_contains(error_of([&] { GgufFile(model.path / "renamed.gguf"); }),
                  "part 2 of 3 of a split model, whose files must be");
}

TEST(GgufSplit, ATensorInTwoPartsIsRefused) {
  const SplitModel model;
  GgufWriter w;
  w.set_payload("split.no", GgufType::U16, Bytes().put<uint16_t>(2).bytes);
  w.set_payload("split.count", GgufType::U16, Bytes().put<uint16_t>(3).bytes);
  w.add_tensor("t1", DType::F32, {1}, std::vector<uint8_t>(4));
  write_file(model.part(3), w.to_bytes());
  expect_contains(error_of([&] { GgufFile(model.part(1)); }), "tensor 't1' occurs twice");
}

TEST(GgufSplit, APieceCutByBytesIsCalledThat) {  // G19
  const TempFolder temp;
  const std::vector<uint8_t> whole = read_file(kGolden);
  const std::string first = temp.path / "toy.gguf.part1of2", second = temp.path / "toy.gguf.part2of2";
  write_file(first, {whole.begin(), whole.end() - 300});
  write_file(second, {whole.end() - 300, whole.end()});
  expect_contains(error_of([&] { GgufFile f(first); }), "join all pieces");
  expect_contains(error_of([&] { GgufFile f(second); }), "join all pieces");
}

TEST(Gguf, OpensPathsWithOtherLetters) {  // U01
  const TempFolder temp;
  const fs::path folder = temp.path / "ü 漢字";
  fs::create_directories(folder);
  fs::copy_file(kGolden, folder / "a b'.gguf");
  EXPECT_EQ(GgufFile(folder / "a b'.gguf").tensors().size(), 4u);
}

TEST(Gguf, ReadsBeyondFourGigabytes) {  // B04
  const TempFolder temp;
  const std::string path = temp.path / "big.gguf";
  const uint64_t rows = 2500, cols = uint64_t{1} << 20, far = rows * cols * 2;  // 5.24 GB of F16
  Bytes b = test::gguf_head(2, 0);
  b.tensor("near", {cols, rows}, 1, 0).tensor("far", {2}, 0, far).pad(32);
  const uint64_t data = b.bytes.size();
  write_file(path, b.bytes);
  fs::resize_file(path, data + far + 8);  // sparse: takes no space
  std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
  const float values[2] = {1.5f, -2.25f};
  out.seekp(static_cast<std::streamoff>(data + far));
  out.write(reinterpret_cast<const char*>(values), sizeof values);
  out.close();
  const GgufFile f(path);
  float found[2];
  dequantize(DType::F32, f.tensor("far", {2}).data.data(), found, 2);
  EXPECT_EQ(found[0], 1.5f);
  EXPECT_EQ(found[1], -2.25f);
  EXPECT_EQ(f.tensor("near").data.size(), far);
}

}  // namespace
}  // namespace pop
