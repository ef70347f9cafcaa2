#include "file.hh"

#include <fcntl.h>
#include <sys/time.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "XrdOuc/XrdOucEnv.hh"
#include "XrdSfs/XrdSfsAio.hh"
#include "made.hh"
#include "ticket.hh"
#include "wall.hh"

namespace thumper {

namespace {

// Bytes and pieces of a vector read that are asked for at once.
constexpr std::size_t batch_bytes = 1 << 20;
constexpr int batch_pieces = 1024;
// How long what a file was when it was opened is what it is.
constexpr auto freshness = std::chrono::milliseconds(20);
// How long what we have begun to write is under way, in seconds. With more, what others have written since would be taken for
// ours; with less, the part of an upload that failed might stay.
constexpr std::int64_t under_way = 5;
// Of a smaller file nothing is lent, and of a larger one the last byte of so many must be there.
constexpr std::size_t worth_lending = 1 << 20;

}  // namespace

File::~File() {
  lender_.reset();
  watched_.reset();
  // Nobody closed it: whoever wrote has no promise.
  settle();
  end_copy();
  thumper_close(file_, 0);
}

int File::settle() {
  auto write = [&](const char *bytes, std::size_t size) -> int {
    ssize_t done = thumper_write(file_, bytes, size, 0);
    return done < 0 ? static_cast<int>(done) : 0;
  };
  return beginning_.give(write, [&] { return thumper_settle(file_); });
}

void File::hand_over() noexcept {
  walled([&]() -> int { return settle(); });
}

int File::Open(const char *path, int flags, mode_t mode, XrdOucEnv &env) {
  return walled([&]() -> int {
    if (file_) return -EINVAL;
    Call call(site_, &env, path);
    if (call.error) return answer(call.error);
    int access = flags & O_ACCMODE;
    if (access != O_RDONLY && site_.is_nobodys(&env)) return -EPERM;
    std::uint32_t how = 0;
    if (access != O_WRONLY) how |= THUMPER_READ;
    how |= access == O_RDONLY ? THUMPER_SOON : to_write;
    if (flags & O_CREAT) how |= THUMPER_CREATE;
    if (flags & O_EXCL) how |= THUMPER_NEW;
    if (flags & O_TRUNC) how |= THUMPER_TRUNCATE;
    int error = 0;
    file_ = Made::take(env, call, access != O_RDONLY && flags & O_TRUNC);
    auto open = [&] { return thumper_open(call.client, &call.who, call.path.c_str(), how, mode, &error); };
    if (!file_) file_ = open();
    if (!file_ && error == -EACCES && access == O_RDWR && flags & O_TRUNC) {
      // XRootD opens so what it has just made, or emptied: who may write it need not be allowed to read it.
      how &= ~static_cast<std::uint32_t>(THUMPER_READ);
      file_ = open();
    }
    if (!file_) return answer(error);
    is_made_ = flags & O_TRUNC;
    note_change();
    if (is_made_ && access != O_RDONLY) beginning_.expect();
    fresh_ = std::chrono::steady_clock::now();
    is_fresh_ = true;
    writable_ = access != O_RDONLY;
    path_ = call.path;
    person_ = call.person;
    if (site_.people().have_table()) opening_.emplace(site_.openings(), path_, person_);
    if (!writable_) lender_.emplace(site_.lending(), *this);
    site_.counters().opens++;
    return writable_ ? leave_ticket(env) : 0;
  });
}

int File::leave_ticket(XrdOucEnv &env) {
  // XRootD says where in a word that clients could say, too; but where there is a key and the file is to be written,
  // it is always its own that comes.
  const char *at = env.Get("tpc.key") ? env.Get("tpc.reproxy") : nullptr;
  if (!at || !site_.holds_tickets(at)) return 0;
  int status = ticket_of().leave(at);
  if (status == 0) {
    ticket_ = at;
    return 0;
  }
  thumper_close(file_, 0);
  file_ = nullptr;
  opening_.reset();
  return answer(status);
}

Ticket File::ticket_of() const {
  thumper_stat stat{};
  thumper_opened(file_, &stat);
  const auto &options = site_.options();
  return {options.socket, options.tree, path_, stat.device, stat.object, stat.generation, person_, options.stable};
}

void File::note_change() { changed_ = std::time(nullptr); }

bool File::undo(const Ticket &file) {
  return walled([&]() -> int {
    int error = 0;
    auto *client = site_.client(error);
    return client && file.undo(client, nullptr, changed_ + under_way);
  }) == 1;
}

// The copy has ended by now: XRootD has ended it, or waited for it.
void File::end_copy() {
  if (ticket_.empty()) return;
  int error = 0;
  if (auto *client = site_.client(error)) undo_unfinished(ticket_, client);
  ticket_.clear();
}

int File::Close(long long *size) {
  return walled([&]() -> int {
    if (!file_) return -EBADF;
    lender_.reset();
    opening_.reset();
    end_copy();
    thumper_stat stat{};
    if (size) settle();
    if (size && thumper_stat_open(file_, &stat) == 0) *size = static_cast<long long>(stat.size);
    bool stable = writable_ && !beginning_.failure() && site_.options().stable;
    // A file that was made and is not whole goes. One that could not be closed since the server is away may be whole, and on
    // stable storage.
    auto closed = [&](auto close) -> int {
      auto mine = ticket_of();
      int status = close(std::exchange(file_, nullptr));
      bool may_be_whole = (status >= 0 || status == -ENOTCONN) && !beginning_.failure();
      if (!may_be_whole) undo(mine);
      return status;
    };
    auto finish = [&](const char *bytes, std::size_t count) {
      return closed([&](thumper_file *file) { return thumper_finish(file, bytes, count, 0, stable); });
    };
    auto end = [&] { return closed([&](thumper_file *file) { return thumper_close(file, stable); }); };
    int status = beginning_.give(finish, end);
    if (file_) status = is_made_ && writable_ ? end() : thumper_close(std::exchange(file_, nullptr), stable);
    if (int failure = beginning_.failure()) status = failure;
    if (status < 0) site_.counters().errors++;
    return answer(status);
  });
}

ssize_t File::counted_read(ssize_t got) {
  auto &counters = site_.counters();
  if (got < 0) {
    counters.errors++;
    return answer(static_cast<int>(got));
  }
  counters.reads++;
  counters.read_bytes += static_cast<std::uint64_t>(got);
  return got;
}

// What will be read soon: the server sees readers that go on by itself.
ssize_t File::Read(off_t, size_t) { return 0; }

ssize_t File::Read(void *buffer, off_t offset, size_t size) {
  if (!file_) return -EBADF;
  if (offset < 0) return -EINVAL;
  if (int status = settle()) return answer(status);
  return counted_read(thumper_read(file_, buffer, size, static_cast<std::uint64_t>(offset)));
}

ssize_t File::ReadRaw(void *buffer, off_t offset, size_t size) { return Read(buffer, offset, size); }

ssize_t File::ReadV(XrdOucIOVec *pieces, int count) {
  return walled([&]() -> ssize_t {
    if (!file_) return -EBADF;
    if (int status = settle()) return answer(status);
    ssize_t total = 0;
    std::vector<thumper_piece> batch;
    std::vector<char> bytes;
    for (int i = 0; i < count;) {
      if (pieces[i].offset < 0 || pieces[i].size < 0) return -EINVAL;
      if (static_cast<std::size_t>(pieces[i].size) >= batch_bytes) {
        ssize_t got = Read(pieces[i].data, pieces[i].offset, pieces[i].size);
        if (got < 0) return got;
        if (got < pieces[i].size) return -ESPIPE;
        total += got;
        i++;
        continue;
      }
      batch.clear();
      std::size_t size = 0;
      int first = i;
      for (; i < count && i - first < batch_pieces; i++) {
        if (pieces[i].offset < 0 || pieces[i].size < 0) return -EINVAL;
        if (size + pieces[i].size > batch_bytes) break;
        batch.push_back({static_cast<std::uint64_t>(pieces[i].offset), static_cast<std::uint32_t>(pieces[i].size)});
        size += pieces[i].size;
      }
      if (bytes.size() < size) bytes.resize(size);
      ssize_t got = counted_read(thumper_read_pieces(file_, batch.data(), batch.size(), bytes.data()));
      if (got < 0) return got;
      const char *from = bytes.data();
      for (int piece = first; piece < i; piece++) {
        std::memcpy(pieces[piece].data, from, pieces[piece].size);
        from += pieces[piece].size;
      }
      total += got;
    }
    return total;
  });
}

Lease File::lend(off_t offset, size_t size, size_t room) {
  if (!file_ || offset < 0) return {};
  return Lease(file_, static_cast<std::uint64_t>(offset), size, room);
}

bool File::can_lend() {
  thumper_stat stat{};
  if (!file_ || thumper_opened(file_, &stat) < 0 || stat.size < worth_lending) return false;
  // One byte, since whatever is lent is counted as what was read, and moved to where it is lent from.
  return static_cast<bool>(lend(worth_lending - 1, 1, 1));
}

void File::note_sent(size_t size) { counted_read(static_cast<ssize_t>(size)); }

ssize_t File::Write(const void *buffer, off_t offset, size_t size) {
  return walled([&]() -> ssize_t {
    if (!file_) return -EBADF;
    if (offset < 0) return -EINVAL;
    if (int failure = beginning_.failure()) return answer(failure);
    is_fresh_ = false;
    auto done = static_cast<ssize_t>(size);
    auto begin = [&] { return site_.options().stable && thumper_begin(file_, buffer, size, 0, 1) == 1; };
    if (beginning_.take(buffer, offset, size, begin)) {
      if (beginning_.holds()) watch();
    } else {
      if (int status = settle()) return answer(status);
      // Nobody else reads what is being made: XRootD receives the next bytes meanwhile.
      int begun = is_made_ ? thumper_begin(file_, buffer, size, static_cast<std::uint64_t>(offset), 0) : 0;
      if (begun < 0) done = begun;
      if (begun == 0) done = thumper_write(file_, buffer, size, static_cast<std::uint64_t>(offset));
    }
    note_change();
    auto &counters = site_.counters();
    if (done < 0) {
      counters.errors++;
      // Whatever its client makes of that: the close tells it, too, and takes the file away.
      if (is_made_ && done != -ENOTCONN) beginning_.fail(static_cast<int>(done));
      return answer(static_cast<int>(done));
    }
    counters.writes++;
    counters.written_bytes += size;
    return done;
  });
}

void File::watch() {
  try {
    watched_.emplace(site_.lookout(), *this);
  } catch (const std::exception &) {
    // Nobody would come for it.
    settle();
  }
}

// XRootD's asynchronous calls: the answer is there before the call returns.
int File::Read(XrdSfsAio *aio) {
  aio->Result = Read(const_cast<void *>(aio->sfsAio.aio_buf), aio->sfsAio.aio_offset, aio->sfsAio.aio_nbytes);
  aio->doneRead();
  return 0;
}

int File::Write(XrdSfsAio *aio) {
  auto *bytes = const_cast<const void *>(aio->sfsAio.aio_buf);
  return written(aio, Write(bytes, aio->sfsAio.aio_offset, aio->sfsAio.aio_nbytes));
}

int File::pgWrite(XrdSfsAio *aio, uint64_t options) {
  auto *bytes = const_cast<void *>(aio->sfsAio.aio_buf);
  return written(aio, XrdOssDF::pgWrite(bytes, aio->sfsAio.aio_offset, aio->sfsAio.aio_nbytes, aio->cksVec, options));
}

// Where an asynchronous write fails, XRootD 5.5 reads no more of what its client sends, which gives up after a minute,
// comes again and goes on. So of a file that is all this client's it takes the rest, for nothing, and the close says
// what was wrong. Whoever comes again before that finds no file.
int File::written(XrdSfsAio *aio, ssize_t done) {
  if (done < 0) {
    if (!is_taken_back_ && !(is_made_ && undo(ticket_of()))) return static_cast<int>(done);
    is_taken_back_ = true;
    beginning_.fail(static_cast<int>(done));
    done = static_cast<ssize_t>(aio->sfsAio.aio_nbytes);
  }
  aio->Result = done;
  aio->doneWrite();
  return 0;
}

int File::Fsync() {
  if (!file_) return -EBADF;
  if (int status = settle()) return answer(status);
  return answer(thumper_sync(file_));
}

int File::Fsync(XrdSfsAio *aio) {
  aio->Result = Fsync();
  aio->doneWrite();
  return 0;
}

int File::Ftruncate(unsigned long long size) {
  if (!file_) return -EBADF;
  if (int status = settle()) return answer(status);
  int status = thumper_truncate_open(file_, size);
  note_change();
  is_fresh_ = false;
  return answer(status);
}

// XRootD marks so what it will take away if its client does not come back (persistence on successful close). It keeps such a
// file open meanwhile, for whoever comes next with the same name: nothing is held back then.
int File::Fchmod(mode_t mode) {
  return walled([&]() -> int {
    if (!file_) return -EBADF;
    beginning_.decline();
    int error = 0;
    auto *client = site_.client(error);
    if (!client) return answer(error);
    auto who = person_.subject();
    int status = thumper_chmod(client, &who, path_.c_str(), mode);
    // Who may write a file that is another's need not be able to mark it.
    return status == -EPERM && writable_ ? 0 : answer(status);
  });
}

int File::Fstat(struct stat *to) {
  // XRootD asks for this when it has opened a file. Where its client got a share in what was open, nobody takes what was made
  // for him before.
  Made::forget();
  if (!file_) return -EBADF;
  if (int status = settle()) return answer(status);
  thumper_stat stat{};
  // XRootD asks before it tells its client that the file is open.
  bool is_fresh = is_fresh_.exchange(false) && std::chrono::steady_clock::now() - fresh_ < freshness;
  int status = is_fresh ? thumper_opened(file_, &stat) : thumper_stat_open(file_, &stat);
  if (status == 0) fill(*to, stat);
  return answer(status);
}

int File::Fctl(int command, int length, const char *args, char **) {
  return walled([&]() -> int {
    if (command != Fctl_utimes) return -ENOTSUP;
    timeval times[2];
    if (!file_) return -EBADF;
    if (length != static_cast<int>(sizeof(times)) || !args) return -EINVAL;
    std::memcpy(times, args, sizeof(times));
    int status = settle();
    if (status == 0) status = thumper_settle(file_);
    if (status < 0) return answer(status);
    int error = 0;
    auto *client = site_.client(error);
    if (!client) return answer(error);
    auto who = person_.subject();
    auto nanos = static_cast<std::uint32_t>(std::clamp<long>(times[1].tv_usec, 0, 999'999) * 1000);
    return answer(thumper_set_mtime(client, &who, path_.c_str(), times[1].tv_sec, nanos));
  });
}

}  // namespace thumper
