#include "model/weight_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/read_ahead.h"
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

std::string describe(const Weights& weights) {
  std::string text;
  for (const PlannedMatrix& p : weights.planned())
    text += fmt::format("{} {} {} {} {} {}\n", traits(p.matrix.type).name, int(p.matrix.layout), p.matrix.unit,
                        p.matrix.rows, p.matrix.cols, p.offset);
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
  for (const TensorInfo& tensor : file.tensors())
    hash.update({tensor.data, size_t(std::min<uint64_t>(tensor.bytes, kPage))});
  for (const MappedFile& part : file.files()) part.expect_random(false);
  std::set<std::string> probes;
  for (const PlannedMatrix& p : weights.planned())
    probes.insert(fmt::format("{} {} {} {:016x}\n", traits(p.matrix.type).name, int(p.matrix.layout), p.matrix.unit,
                              probe({.type = p.matrix.type, .layout = p.matrix.layout, .unit = p.matrix.unit})));
  for (const std::string& text : probes) hash.update(as_bytes(text));
  return hash.hex();
}

// A file being written, locked while it is: one that nobody has locked was left by a killed process.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& prefix) {
    // Between being made and being locked it may be taken for a left-over and removed: then another is made.
    struct stat status = {};
    for (int tries = 0; status.st_nlink == 0 && tries < 100; ++tries) {
      if (fd_ >= 0) close(fd_);
      path_ = prefix + "XXXXXX";
      fd_ = mkostemp(path_.data(), O_CLOEXEC);
      if (fd_ < 0) fail("{}: cannot be written: {}", printable(path_, 400), std::strerror(errno));
      int locked = -1;  // not on every file system; there it may be removed later
      do locked = flock(fd_, LOCK_EX);
      while (locked != 0 && errno == EINTR);
      if (fstat(fd_, &status) != 0) break;
    }
  }
  ~TemporaryFile() {
    if (!path_.empty()) unlink(path_.c_str());
    if (fd_ >= 0) close(fd_);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  // Asks for the room first, so that a full disk is said at once and nothing is half written.
  void reserve(size_t bytes) const {
    if (fallocate(fd_, 0, 0, off_t(bytes)) != 0 && errno != EOPNOTSUPP && errno != ENOSYS) fail_write(bytes);
  }
  void write(std::span<const uint8_t> bytes) const {
    constexpr size_t kStep = size_t(8) << 20;
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), std::min(kStep, bytes.size()));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail_write(bytes.size());
      bytes = bytes.subspan(size_t(n));
    }
  }
  void become(const std::string& path) {
    if (fsync(fd_) != 0 || std::rename(path_.c_str(), path.c_str()) != 0)
      fail("{}: cannot be written: {}", printable(path, 400), std::strerror(errno));
    path_.clear();
  }

 private:
  [[noreturn]] void fail_write(size_t bytes) const {
    fail("{}: expected room for {} more bytes, could not write them: {}", printable(path_, 400), bytes,
         std::strerror(errno));
  }
  std::string path_;
  int fd_ = -1;
};

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  static_cast<void>(fsync(fd));  // the file itself is safe; at worst its name is lost with the power
  close(fd);
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

void WeightCache::remove_left_over() const {
  std::error_code ignored;
  const std::string prefix = std::filesystem::path(path_).filename().string() + ".tmp-";
  for (std::filesystem::directory_iterator it(folder_, ignored), end; !ignored && it != end; it.increment(ignored)) {
    if (!it->path().filename().string().starts_with(prefix)) continue;
    const int fd = ::open(it->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(it->path().c_str());
    close(fd);
  }
}

void WeightCache::write(std::span<const uint8_t> block, ThreadPool& pool) const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error)
    fail("{}: expected a folder that can be made or used, found: {}", printable(folder_, 400), error.message());
  remove_left_over();
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

  TemporaryFile file(path_ + ".tmp-");
  file.reserve(offset + block.size());
  file.write(head);
  file.write(block);
  file.become(path_);
  sync_folder(folder_);
}

}  // namespace pop
