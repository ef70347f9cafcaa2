#include "options.hh"

#include <sstream>
#include <stdexcept>

namespace thumper {

namespace {

std::uint32_t number(const std::string &word, const std::string &value, std::uint32_t least, std::uint32_t most) {
  std::uint64_t out = 0;
  bool digits = !value.empty() && value.size() < 10;
  for (char c : value) {
    digits = digits && c >= '0' && c <= '9';
    out = out * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (!digits || out < least || out > most) {
    throw std::runtime_error("'" + word + "': a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return static_cast<std::uint32_t>(out);
}

}  // namespace

Options Options::parse(const char *words) {
  Options options;
  std::istringstream in(words ? words : "");
  for (std::string word; in >> word;) {
    auto equals = word.find('=');
    if (equals == std::string::npos) throw std::runtime_error("'" + word + "': NAME=VALUE is expected");
    std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    if (value.empty()) throw std::runtime_error("'" + word + "': there is no value");
    if (name == "pool" || name == "tree") {
      if (!options.tree.empty()) throw std::runtime_error("'" + word + "': there is one tree");
      if (name == "pool" && value.find('/') != std::string::npos) {
        throw std::runtime_error("'" + word + "': a file system of a pool is given as tree=");
      }
      options.tree = value;
    } else if (name == "socket") {
      options.socket = value;
    } else if (name == "map") {
      options.map = value;
    } else if (name == "lanes") {
      options.lanes = number(word, value, 1, 512);
    } else if (name == "patience") {
      options.patience = number(word, value, 0, 3600);
    } else if (name == "backlog") {
      options.backlog = number(word, value, 0, 65535);
    } else if (name == "stable" && (value == "on" || value == "off")) {
      options.stable = value == "on";
    } else {
      throw std::runtime_error("'" + word + "' is not known");
    }
  }
  if (options.tree.empty()) throw std::runtime_error("pool=POOL or tree=POOL/FS is missing");
  return options;
}

}  // namespace thumper
