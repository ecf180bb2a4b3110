#include "model/weight_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/read_ahead.h"
#include "base/whole_file.h"
#include "formats/scaled_f8.h"
#include "tensor/layout.h"
#include "tensor/relayout.h"

namespace pop {
namespace {

constexpr size_t kChunk = size_t(4) << 20;  // of the block, one checksum each
constexpr size_t kPage = 4096;              // the block begins at a multiple, so that its matrices lie as in memory

struct Header {
  char magic[8] = {'P', 'O', 'P', 'C', 'A', 'C', 'H', 'E'};
  uint32_t version = 1;  // of this file's form; the form of the weights is in the key
  uint32_t chunks = 0;
  uint64_t block_bytes = 0;
  char key[64] = {};
};

// [header][a checksum per chunk][checksum of all before], filled up to whole pages.
size_t head_bytes(size_t chunks) { return sizeof(Header) + 8 * chunks + 8; }
size_t block_offset(size_t chunks) { return (head_bytes(chunks) + kPage - 1) / kPage * kPage; }
size_t chunks_of(size_t block_bytes) { return (block_bytes + kChunk - 1) / kChunk; }

std::span<const uint8_t> chunk_of(std::span<const uint8_t> block, size_t i) {
  return block.subspan(i * kChunk, std::min(kChunk, block.size() - i * kChunk));
}

// What re-laying makes of a few rows of noise: another program version that puts any byte elsewhere gets another key.
uint64_t probe(const Matrix& like) {
  Matrix m = like;
  m.rows = 66 * m.unit;
  m.cols = traits(m.type).block_elems * 11;
  const size_t stride = row_bytes(m.type, m.cols);
  std::vector<uint8_t> noise(stride * size_t(m.rows)), out(matrix_bytes(m));
  uint32_t state = 1;
  for (uint8_t& byte : noise) byte = uint8_t((state = state * 1664525u + 1013904223u) >> 24);
  std::vector<const uint8_t*> rows;
  for (int r = 0; r < m.rows; ++r) rows.push_back(noise.data() + size_t(r) * stride);
  write_rows(m, 0, rows, out.data());
  return checksum(out);
}

// The same for what quantising makes of weights that are of another type in the file.
std::string probe_of_type(const PlannedMatrix& p) {
  const DType type = p.matrix.type;
  std::string text;
  for (const RawTensor& part : p.parts) {
    if (part.type == type) continue;
    std::vector<float> values(512);
    for (size_t i = 0; i < values.size(); ++i) values[i] = (float(i * i % 97) - 48.3f) * float(1 + i / 32);
    std::vector<uint8_t> made(row_bytes(type, int64_t(values.size())));
    quantize(type, values.data(), made.data(), int64_t(values.size()));
    text += fmt::format("{} of {} {:016x}\n", traits(type).name, traits(part.type).name, checksum(made));
  }
  return text;
}

std::string describe(const Weights& weights) {
  std::string text;
  for (const PlannedMatrix& p : weights.planned())
    text += fmt::format("{} {} {} {} {} {} {}\n", traits(p.matrix.type).name, int(p.matrix.layout), p.matrix.unit,
                        p.matrix.rows, p.matrix.cols, p.offset, p.pair_halves_of);
  return text;
}

std::span<const uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string name_hash(const TensorSource& file, const Weights& weights) {
  Sha256 hash;
  for (const MappedFile& part : file.files()) {
    hash.update(part.bytes().first(std::min<size_t>(part.bytes().size(), 1 << 20)));
    hash.update(as_bytes(fmt::format("\n{}\n", part.bytes().size())));
  }
  hash.update(as_bytes(describe(weights)));
  return hash.hex();
}

std::string full_key(const TensorSource& file, const Weights& weights, const std::string& name) {
  Sha256 hash;
  hash.update(as_bytes(name));
  for (const MappedFile& part : file.files()) {
    hash.update(as_bytes(fmt::format("\n{}", part.modified_ns())));
    part.expect_random(true);
  }
  // Models tuned from one another share metadata and size, and unpacked archives their times: a page of each tensor differs.
  for (const TensorInfo& tensor : file.tensors()) {
    hash.update({tensor.data, size_t(std::min<uint64_t>(tensor.bytes, kPage))});
    if (tensor.scales)
      hash.update({reinterpret_cast<const uint8_t*>(tensor.scales->values.data()),
                   tensor.scales->values.size() * sizeof(float)});
  }
  for (const MappedFile& part : file.files()) part.expect_random(false);
  std::set<std::string> probes;
  for (const PlannedMatrix& p : weights.planned()) {
    probes.insert(probe_of_type(p));
    probes.insert(fmt::format("{} {} {} {:016x}\n", traits(p.matrix.type).name, int(p.matrix.layout), p.matrix.unit,
                              probe({.type = p.matrix.type, .layout = p.matrix.layout, .unit = p.matrix.unit})));
  }
  for (const std::string& text : probes) hash.update(as_bytes(text));
  return hash.hex();
}

}  // namespace

WeightCache::WeightCache(const std::string& folder, const TensorSource& file, const Weights& weights)
    : folder_(folder), block_bytes_(weights.block_bytes()) {
  const std::string name = name_hash(file, weights);
  path_ = fmt::format("{}/pop-{}.weights", folder, name.substr(0, 16));
  key_ = full_key(file, weights, name);
}

std::optional<WeightCache::Found> WeightCache::open(ThreadPool& pool, const LoadProgress& progress) const {
  if (access(path_.c_str(), F_OK) != 0) return std::nullopt;
  std::optional<MappedFile> file;
  try {
    file.emplace(path_);
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::span<const uint8_t> bytes = file->bytes();
  const size_t chunks = chunks_of(block_bytes_), offset = block_offset(chunks);
  if (bytes.size() != offset + block_bytes_) return std::nullopt;
  Header header, expected;
  std::memcpy(&header, bytes.data(), sizeof header);
  expected.chunks = uint32_t(chunks);
  expected.block_bytes = block_bytes_;
  std::memcpy(expected.key, key_.data(), sizeof expected.key);
  uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + head_bytes(chunks) - 8, 8);
  if (std::memcmp(&header, &expected, sizeof header) != 0 || sum != checksum(bytes.first(head_bytes(chunks) - 8)))
    return std::nullopt;

  const std::span<const uint8_t> block = bytes.subspan(offset);
  ReadAhead ahead({{&*file, block}});
  std::atomic<bool> damaged = false;
  const int together = pool.threads() * 2;
  for (size_t first = 0; first < chunks && !damaged; first += size_t(together)) {
    const int count = int(std::min(chunks - first, size_t(together)));
    pool.run(count, [&](int i, int) {
      const size_t chunk = first + size_t(i);
      file->fault_in(chunk_of(block, chunk));
      uint64_t stored = 0;
      std::memcpy(&stored, bytes.data() + sizeof(Header) + 8 * chunk, 8);
      if (checksum(chunk_of(block, chunk)) != stored) damaged = true;
    });
    ahead.advance(uint64_t(count) * kChunk);
    if (progress) progress(std::min<uint64_t>(block.size(), (first + size_t(count)) * kChunk), block.size());
  }
  if (damaged) return std::nullopt;
  return Found{std::move(*file), offset};
}

void WeightCache::write(std::span<const uint8_t> block, ThreadPool& pool) const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error)
    fail("{}: expected a folder that can be made or used, found: {}", printable(folder_, 400), error.message());
  WholeFile::remove_left_over(path_);
  const size_t chunks = chunks_of(block.size()), offset = block_offset(chunks);
  std::vector<uint8_t> head(offset);
  Header header;
  header.chunks = uint32_t(chunks);
  header.block_bytes = block.size();
  std::memcpy(header.key, key_.data(), sizeof header.key);
  std::memcpy(head.data(), &header, sizeof header);
  pool.run(int(chunks), [&](int i, int) {
    const uint64_t sum = checksum(chunk_of(block, size_t(i)));
    std::memcpy(head.data() + sizeof(Header) + 8 * size_t(i), &sum, 8);
  });
  const uint64_t sum = checksum(std::span(head).first(head_bytes(chunks) - 8));
  std::memcpy(head.data() + head_bytes(chunks) - 8, &sum, 8);

  WholeFile file(path_, 0600);
  file.reserve(offset + block.size());
  file.write(head);
  file.write(block);
  file.become_whole();
}

}  // namespace pop
