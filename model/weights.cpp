#include "model/weights.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/read_ahead.h"
#include "base/sanitizer.h"
#include "formats/scaled_f8.h"
#include "tensor/column_format.h"
#include "tensor/convert_rows.h"
#include "tensor/layout.h"
#include "tensor/relayout.h"

namespace pop {
namespace {

// A piece is the work of one thread at a time: long enough to stream, short enough that few file pages are held.
constexpr size_t kPieceBytes = size_t(512) << 10;
// Between two regions pages of the file are given back, progress is told and the disk is let run on.
constexpr size_t kRegionBytes = size_t(16) << 20;
// Between two matrices: nothing reads or writes there (AddressSanitizer builds watch it).
constexpr size_t kGap = kLine;

struct Piece {
  const PlannedMatrix* planned;
  int from, to;  // rows of the file
};

std::span<const uint8_t> rows_of(const RawTensor& part, int from, int to) {
  const size_t stride = part.stride();
  return part.data.subspan(size_t(from) * stride, size_t(to - from) * stride);
}

const MappedFile* file_of(const TensorSource& file, std::span<const uint8_t> part) {
  for (const MappedFile& f : file.files())
    if (part.data() >= f.bytes().data() && part.data() < f.bytes().data() + f.bytes().size()) return &f;
  return nullptr;
}

// All pieces in the order in which their first parts stand in the file.
std::vector<Piece> cut(std::span<const PlannedMatrix> planned) {
  std::vector<const PlannedMatrix*> order;
  for (const PlannedMatrix& p : planned) order.push_back(&p);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::less<>()(a->parts[0].data.data(), b->parts[0].data.data());
  });
  std::vector<Piece> pieces;
  for (const PlannedMatrix* p : order) {
    // Rows of one group of kRowTile may share bytes in Columns: a piece is a multiple of it.
    const size_t tile = rows_of(p->parts[0], 0, 1).size() * kRowTile;
    const int rows = int(p->parts[0].shape[0]), size = kRowTile * int(std::max<size_t>(1, kPieceBytes / tile));
    for (int from = 0; from < rows; from += size) pieces.push_back({p, from, std::min(rows, from + size)});
  }
  return pieces;
}

int file_row(const PlannedMatrix& p, int row) {
  if (p.pair_halves_of == 0) return row;
  const int in_head = row % p.pair_halves_of;
  return row - in_head + in_head / 2 + in_head % 2 * (p.pair_halves_of / 2);
}

// A value that its matrix cannot hold.
struct Refused {
  const RawTensor* part;
  DType type;
  float value;
};

std::optional<Refused> fill_piece(const Piece& piece, const TensorSource& file, uint8_t* block) {
  const PlannedMatrix& p = *piece.planned;
  const Matrix& m = p.matrix;
  const auto count = size_t(piece.to - piece.from), unit = p.parts.size();
  const size_t made = row_bytes(m.type, m.cols);  // bytes of a row that is of another type in the file
  std::vector<const uint8_t*> rows(count * unit);
  std::vector<uint8_t> other(count * unit * made *
                             size_t(std::any_of(p.parts.begin(), p.parts.end(), [&](const RawTensor& part) {
                               return part.type != m.type || part.scales;
                             })));
  std::vector<uint8_t> wide;  // a row of F8_E4M3 with its scales
  std::vector<float> scratch;
  for (size_t u = 0; u < unit; ++u) {
    const RawTensor& part = p.parts[u];
    const std::span<const uint8_t> bytes = rows_of(part, piece.from, piece.to);
    if (const MappedFile* f = file_of(file, bytes)) f->fault_in(bytes);
    const size_t stride = bytes.size() / count;
    for (size_t r = 0; r < count; ++r) {
      const size_t at = r * unit + u;
      const auto row = size_t(file_row(p, piece.from + int(r)));
      rows[at] = part.data.data() + row * stride;
      if (part.type == m.type && !part.scales) continue;
      uint8_t* const out = other.data() + at * made;
      if (part.scales) {
        wide.resize(row_bytes(DType::BF16, m.cols));
        if (const auto value = f8_row_to_bf16(part, int64_t(row), wide.data()))
          return Refused{&part, part.type, *value};
        rows[at] = wide.data();
      }
      if (const auto value = convert_rows(part.type, m.type, m.cols, 1, rows[at], out, scratch))
        return Refused{&part, m.type, *value};
      rows[at] = out;
    }
  }
  write_rows(m, piece.from * m.unit, rows, block + p.offset);
  return std::nullopt;
}

}  // namespace

Weights::~Weights() {
  if constexpr (kAddressSanitizer) unpoison_memory(data_, bytes_);
}

int Weights::add(std::vector<RawTensor> parts, const MatrixWish& wanted) {
  Matrix m;
  m.type = wanted.type.value_or(parts[0].type);
  for (const RawTensor& part : parts)
    if (part.type != m.type && !wanted.type) m.type = DType::F32;
  m.layout = has_columns_layout(m.type) ? wanted.layout : Layout::Rows;
  m.unit = int(parts.size());
  m.rows = int(parts[0].shape[0]) * m.unit;
  m.cols = int(parts[0].shape[1]);
  const size_t bytes = pop::matrix_bytes(m);
  planned_.push_back({m, std::move(parts), bytes_, bytes, wanted.pair_halves_of});
  bytes_ += (bytes + kLine - 1) / kLine * kLine + kGap;
  return int(planned_.size()) - 1;
}

void Weights::fill(const TensorSource& file, ThreadPool& pool, const LoadProgress& progress) {
  memory_ = AlignedBuffer(bytes_);
  const std::vector<Piece> pieces = cut(planned_);
  std::vector<FilePart> parts;
  std::vector<size_t> sizes;  // of each piece, in the file
  for (const Piece& piece : pieces) {
    size_t bytes = 0;
    for (const RawTensor& part : piece.planned->parts) {
      const std::span<const uint8_t> rows = rows_of(part, piece.from, piece.to);
      bytes += rows.size();
      if (const MappedFile* f = file_of(file, rows)) parts.push_back({f, rows});
    }
    sizes.push_back(bytes);
  }
  const uint64_t total = std::accumulate(sizes.begin(), sizes.end(), uint64_t(0));
  uint64_t done = 0;
  ReadAhead ahead(std::move(parts));
  for (size_t from = 0, to = 0; from < pieces.size(); from = to) {
    uint64_t bytes = 0;
    while (to < pieces.size() && (to == from || bytes + sizes[to] <= kRegionBytes)) bytes += sizes[to++];
    std::vector<std::optional<Refused>> refused(to -
                                                from);  // the first in the file is named, whichever thread found it
    pool.run(int(to - from),
             [&](int i, int) { refused[size_t(i)] = fill_piece(pieces[from + size_t(i)], file, memory_.data()); });
    for (const auto& found : refused)
      if (found)
        fail("{}: tensor {}: expected values that {} can hold, found {}", file.path(), printable(found->part->name),
             traits(found->type).name, found->value);
    // All of the file, not what was just read: a touched page may bring its large folio, up to 2 MiB, back with it.
    for (const MappedFile& f : file.files()) f.release(f.bytes());
    ahead.advance(bytes);
    done += bytes;
    if (progress) progress(done, total);
  }
  place(memory_.data());
}

void Weights::use(MappedFile cache, size_t offset) {
  cache_ = std::move(cache);
  place(cache_.bytes().data() + offset);
}

void Weights::place(const uint8_t* data) {
  data_ = data;
  for (PlannedMatrix& p : planned_) p.matrix.data = data + p.offset;
}

void Weights::guard_gaps() const {
  if constexpr (!kAddressSanitizer) return;
  for (const PlannedMatrix& p : planned_) {
    const size_t end = p.offset + (p.bytes + 7) / 8 * 8;  // eight bytes have one mark
    poison_memory(data_ + end, p.offset + (p.bytes + kLine - 1) / kLine * kLine + kGap - end);
  }
}

uint64_t Weights::matrix_bytes() const {
  uint64_t total = 0;
  for (const PlannedMatrix& p : planned_) total += p.bytes;
  return total;
}

}  // namespace pop
