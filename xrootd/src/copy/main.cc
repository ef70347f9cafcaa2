// thumper-xrdtpc: fetches a file of another XRootD server into the pool, for `ofs.tpc pgm`.
//
// The one idea: XRootD's own program for this writes to a path of the host, where a pool's files are not; this one writes
// through `thumper serve`, for the person who asked for the copy and into the file that was opened for him. XRootD takes
// the last line with a colon and a blank for what went wrong, and the exit status for a number of errno(3).

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include "failure.hh"
#include "source.hh"
#include "target.hh"

namespace {

using thumper::Failure;

constexpr auto between_lines = std::chrono::seconds(10);

struct Words {
  std::string checksum, from;
};

// As XRootD calls it: [-C CHECKSUM] [-S STREAMS] SOURCE TARGET. The target is in the ticket, and there is one stream.
Words parse(int count, char **words) {
  Words out;
  int option;
  while ((option = getopt(count, words, "C:S:")) != -1) {
    if (option == 'C') {
      out.checksum = optarg;
    } else if (option != 'S') {
      throw Failure(EINVAL, "[-C CHECKSUM] [-S STREAMS] SOURCE TARGET is expected");
    }
  }
  if (count - optind != 2) throw Failure(EINVAL, "[-C CHECKSUM] [-S STREAMS] SOURCE TARGET is expected");
  out.from = words[optind];
  return out;
}

volatile sig_atomic_t ended = 0;

// When xrootd goes, so does what it has asked for: somebody may begin it anew.
void go_with_xrootd() {
  pid_t parent = getppid();
  struct sigaction action {};
  action.sa_handler = [](int) { ended = 1; };
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) ended = 1;
}

void compare(const std::string &words, thumper::Source &source, thumper::Target &target) {
  // KIND, or KIND:VALUE; other words of xrdcp's behind the colon ask for what is done anyway.
  auto colon = words.find(':');
  std::string kind = words.substr(0, colon), due;
  if (colon != std::string::npos) due = words.substr(colon + 1);
  if (due.empty() || due == "source" || due == "print") due = source.checksum(kind);
  std::string is = target.digest(kind);
  if (is != due) throw Failure(EIO, kind + " is " + is + " here and " + due + " there");
}

void copy(const Words &words) {
  const char *ticket = std::getenv("XRD_CPTARGET");
  if (!ticket) throw Failure(EINVAL, "XRD_CPTARGET is not set: xrootd starts this, with libXrdThumper as ofs.osslib");
  thumper::Target target(ticket);
  // What is under way when xrootd ends stays so, and all that it needs: it goes with the process.
  auto let_go = [](thumper::Source *source) {
    if (!ended) delete source;
  };
  std::unique_ptr<thumper::Source, decltype(let_go)> held(new thumper::Source(words.from, ended), let_go);
  thumper::Source &source = *held;
  auto said = std::chrono::steady_clock::now();
  std::uint64_t done = 0;
  std::size_t length = 0;
  while (const char *bytes = source.next(length)) {
    if (ended) throw Failure(ECANCELED, "xrootd has ended");
    target.write(bytes, length);
    done += length;
    auto now = std::chrono::steady_clock::now();
    if (now - said < between_lines) continue;
    said = now;
    std::printf("%llu of %llu bytes\n", static_cast<unsigned long long>(done),
                static_cast<unsigned long long>(source.size()));
    std::fflush(stdout);
  }
  target.finish();
  if (!words.checksum.empty()) compare(words.checksum, source, target);
  target.keep();
}

}  // namespace

int main(int count, char **words) {
  go_with_xrootd();
  int number = EIO;
  try {
    copy(parse(count, words));
    return 0;
  } catch (const Failure &failure) {
    number = failure.number();
    std::fprintf(stderr, "thumper-xrdtpc: %s\n", failure.what());
  } catch (const std::exception &error) {
    std::fprintf(stderr, "thumper-xrdtpc: %s\n", error.what());
  }
  // Answers that are still to come would be waited for.
  if (ended) _exit(number);
  return number;
}
