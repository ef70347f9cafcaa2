#include "lending.hh"

#include <algorithm>

namespace thumper {

Lease::Lease(thumper_file *file, std::uint64_t offset, std::size_t size, std::size_t room) {
  std::size_t count = std::min(room, most);
  lease_ = thumper_lend(file, offset, size, pieces_.data(), &count, &fd_);
  if (!lease_) return;
  count_ = count;
  // XRootD tells its client how much comes by what the pieces have.
  std::size_t sum = 0;
  for (auto &piece : *this) sum += piece.length;
  if (sum != size || fd_ < 0) give_back();
}

void Lease::give_back() {
  thumper_lease_end(lease_);
  lease_ = nullptr;
}

Lending::One::One(Lending &of, File &file) : of_(of) {
  std::lock_guard lock(of_.lock_);
  do {
    number_ = of_.next_;
    of_.next_ = number_ == last ? first : number_ - 1;
  } while (!of_.all_.emplace(number_, &file).second);
}

Lending::One::~One() {
  std::lock_guard lock(of_.lock_);
  of_.all_.erase(number_);
}

File *Lending::find(int number) {
  if (number > first) return nullptr;
  std::lock_guard lock(lock_);
  auto found = all_.find(number);
  return found == all_.end() ? nullptr : found->second;
}

}  // namespace thumper
