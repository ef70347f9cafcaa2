/* Every function of the client library once, as a C program calls it: all PROGRAM SOCKET TREE
 *
 * Status 0: all was as it should be; else the first thing that was not is on standard error. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "thumper.h"

#define CHECK(what)                                                       \
  do {                                                                    \
    if (!(what)) {                                                        \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, thumper_message()); \
      return 1;                                                           \
    }                                                                     \
  } while (0)

static char big[3000001], back[3000010];

static int whole_files(const thumper_client *client) {
  thumper_subject his = {.uid = 1001, .gid = 1001};
  thumper_stat stat;
  memset(&stat, 0, sizeof stat);
  CHECK(thumper_put(client, NULL, "/put", 0, 0644, "hello", 5, 1) == 0);
  CHECK(thumper_get(client, NULL, "/put", back, 100, &stat) == 5);
  CHECK(memcmp(back, "hello", 5) == 0 && stat.size == 5 && stat.mode == (S_IFREG | 0644) && stat.links == 1);
  CHECK(thumper_get(client, NULL, "/put", back, 2, NULL) == 2);
  CHECK(thumper_put(client, NULL, "/put", THUMPER_NEW, 0644, "x", 1, 1) == -EEXIST);
  CHECK(strstr(thumper_message(), "/put") != NULL);
  CHECK(thumper_put(client, &his, "/put", 0, 0644, "x", 1, 0) == -EACCES);
  CHECK(thumper_put(client, NULL, "/a/b/put", 0, 0644, "x", 1, 0) == -ENOENT);
  CHECK(thumper_put(client, NULL, "/a/b/put", THUMPER_PARENTS, 0644, big, sizeof big, 1) == 0);
  CHECK(thumper_get(client, NULL, "/a/b/put", back, sizeof back, &stat) == sizeof big);
  CHECK(memcmp(back, big, sizeof big) == 0 && stat.size == sizeof big);
  CHECK(thumper_put(client, NULL, "/empty", 0, 0600, NULL, 0, 1) == 0);
  CHECK(thumper_get(client, NULL, "/empty", NULL, 0, &stat) == 0 && stat.size == 0);
  CHECK(thumper_get(client, NULL, "/nothing", back, 1, NULL) == -ENOENT);
  return 0;
}

static int open_files(const thumper_client *client) {
  thumper_stat stat;
  int error = 1;
  unsigned how = THUMPER_READ | THUMPER_WRITE | THUMPER_CREATE | THUMPER_NEW;
  CHECK(!thumper_open(client, NULL, "/nothing", THUMPER_READ, 0, &error) && error == -ENOENT);
  thumper_file *file = thumper_open(client, NULL, "/log", how | THUMPER_DIGESTS, 0640, &error);
  CHECK(file && error == 0);
  CHECK(thumper_opened(file, &stat) == 0 && stat.size == 0 && stat.mode == (S_IFREG | 0640));
  CHECK(thumper_write(file, "0123456789", 10, 0) == 10);
  CHECK(thumper_write(file, "", 0, 7) == 0);
  CHECK(thumper_write_stable(file, "abc", 3, 10) == 3);
  CHECK(thumper_write_stable(file, big, sizeof big, 13) == sizeof big);
  CHECK(thumper_stat_open(file, &stat) == 0 && stat.size == 13 + sizeof big);
  CHECK(thumper_read(file, back, 13, 0) == 13 && memcmp(back, "0123456789abc", 13) == 0);
  CHECK(thumper_read(file, back, sizeof back, 13) == sizeof big && memcmp(back, big, sizeof big) == 0);
  thumper_piece pieces[] = {{10, 3}, {0, 2}};
  CHECK(thumper_read_pieces(file, pieces, 2, back) == 5 && memcmp(back, "abc01", 5) == 0);
  pieces[1].offset = 13 + sizeof big - 1;
  CHECK(thumper_read_pieces(file, pieces, 2, back) == -ESPIPE);
  CHECK(thumper_truncate_open(file, 12) == 0 && thumper_sync(file) == 0);
  CHECK(thumper_stat_path(client, NULL, "/log", 1, &stat) == 0 && stat.size == 12);
  CHECK(thumper_close(file, 1) == 0);
  file = thumper_open(client, NULL, "/finished", how, 0644, &error);
  CHECK(file && thumper_write(file, "be", 2, 0) == 2 && thumper_finish(file, "gun", 3, 2, 1) == 0);
  CHECK(thumper_get(client, NULL, "/finished", back, 10, NULL) == 5 && memcmp(back, "begun", 5) == 0);
  file = thumper_open(client, NULL, "/underway", how, 0644, &error);
  CHECK(file && thumper_settle(file) == 0 && thumper_begin(file, "begun", 5, 0, 1) == 1);
  CHECK(thumper_stat_open(file, &stat) == 0 && stat.size == 5 && thumper_begin(file, "o", 1, 1, 0) == 1);
  CHECK(thumper_settle(file) == 0 && thumper_close(file, 1) == 0);
  file = thumper_open(client, NULL, "/finished", THUMPER_READ, 0, NULL);
  CHECK(file && thumper_begin(file, "x", 1, 0, 0) == 1 && thumper_settle(file) == -EBADF);
  CHECK(thumper_read(file, back, 1, 0) == -EBADF && thumper_close(file, 0) == -EBADF);
  file = thumper_open(client, NULL, "/finished", THUMPER_READ, 0, NULL);
  CHECK(file && thumper_write(file, "x", 1, 0) == -EBADF && thumper_finish(file, "x", 1, 0, 0) == -EBADF);
  file = thumper_open(client, NULL, "/log", THUMPER_WRITE | THUMPER_TRUNCATE, 0, NULL);
  CHECK(file && thumper_read(file, back, 1, 0) == -EBADF && thumper_close(file, 0) == 0);
  CHECK(thumper_stat_path(client, NULL, "/log", 1, &stat) == 0 && stat.size == 0);
  return 0;
}

static int names(const thumper_client *client) {
  thumper_stat stat;
  char name[256];
  int error = 1, count = 0, found = 0;
  CHECK(thumper_mkdir(client, NULL, "/dir", 0755, 0) == 0 && thumper_mkdir(client, NULL, "/dir", 0755, 0) == -EEXIST);
  CHECK(thumper_mkdir(client, NULL, "/dir/x/y", 0755, 1) == 0 && thumper_mkdir(client, NULL, "/dir", 0755, 1) == 0);
  for (int i = 0; i < 600; i++) {
    snprintf(name, sizeof name, "/dir/file-%03d", i);
    CHECK(thumper_put(client, NULL, name, 0, 0644, name, i % 7, 0) == 0);
  }
  CHECK(!thumper_opendir(client, NULL, "/put", &error) && error == -ENOTDIR);
  thumper_dir *dir = thumper_opendir(client, NULL, "/dir", &error);
  CHECK(dir && error == 0);
  /* A name for which there is no room is still the next one. */
  CHECK(thumper_readdir(dir, name, 1, &stat) == -ERANGE);
  while (thumper_readdir(dir, name, sizeof name, &stat) == 1) {
    count++;
    found += strcmp(name, "x") == 0 ? S_ISDIR(stat.mode) : stat.size == (unsigned)(atoi(name + 5) % 7);
  }
  CHECK(count == 601 && found == 601 && thumper_readdir(dir, name, sizeof name, NULL) == 0);
  thumper_closedir(dir);
  CHECK(thumper_rename(client, NULL, "/dir/file-000", "/dir/file-001") == 0);
  CHECK(thumper_stat_path(client, NULL, "/dir/file-000", 0, &stat) == -ENOENT);
  CHECK(thumper_unlink(client, NULL, "/dir/file-001") == 0 && thumper_unlink(client, NULL, "/dir/file-001") == -ENOENT);
  CHECK(thumper_rmdir(client, NULL, "/dir/x") == -ENOTEMPTY && thumper_rmdir(client, NULL, "/dir/x/y") == 0);
  CHECK(thumper_rmdir(client, NULL, "/dir/x") == 0);
  CHECK(thumper_truncate(client, NULL, "/put", 3) == 0 && thumper_chmod(client, NULL, "/put", 0600) == 0);
  CHECK(thumper_set_mtime(client, NULL, "/put", 1234567890, 987654321) == 0);
  CHECK(thumper_stat_path(client, NULL, "/put", 0, &stat) == 0 && stat.size == 3 && stat.mode == (S_IFREG | 0600));
  CHECK(stat.mtime == 1234567890 && stat.mtime_nanos == 987654321 && stat.device && stat.object && stat.generation);
  return 0;
}

static int attributes(const thumper_client *client) {
  char value[64];
  thumper_space space;
  CHECK(thumper_setxattr(client, NULL, "/put", "user.colour", "green", 5) == 0);
  CHECK(thumper_setxattr(client, NULL, "/put", "user.empty", "", 0) == 0);
  CHECK(thumper_getxattr(client, NULL, "/put", "user.colour", NULL, 0) == 5);
  CHECK(thumper_getxattr(client, NULL, "/put", "user.colour", value, 4) == -ERANGE);
  CHECK(thumper_getxattr(client, NULL, "/put", "user.colour", value, sizeof value) == 5 && memcmp(value, "green", 5) == 0);
  CHECK(thumper_getxattr(client, NULL, "/put", "user.empty", value, sizeof value) == 0);
  CHECK(thumper_listxattr(client, NULL, "/put", value, sizeof value) == 23);
  CHECK(thumper_listxattr(client, NULL, "/put", value, 5) == -ERANGE);
  /* More than there can be is not nothing. */
  CHECK(thumper_setxattr(client, NULL, "/put", "user.colour", "x", SIZE_MAX) == -EINVAL);
  CHECK(thumper_setxattr(client, NULL, "/put", "user.empty", NULL, 0) == 0);
  CHECK(thumper_getxattr(client, NULL, "/put", "user.empty", value, sizeof value) == -ENODATA);
  CHECK(thumper_listxattr(client, NULL, "/put", NULL, 0) == 12);
  /* What was written counts once it is on disk, which nobody has to ask for. */
  for (int i = 0; i < 300 && thumper_space_of(client, "/", &space) == 0 && space.used <= sizeof big; i++) usleep(100000);
  CHECK(thumper_space_of(client, "/", &space) == 0 && space.total == space.free + space.used && space.used > sizeof big);
  return 0;
}

/* What makes no sense is said, and is nobody's end. */
static int nonsense(const thumper_client *client, const char *socket) {
  int error = 0;
  thumper_subject many = {.uid = 1, .gid = 1, .groups = NULL, .group_count = 3};
  CHECK(!thumper_connect(NULL, "tank", 0, 0, &error) && error == -EINVAL);
  CHECK(!thumper_connect("/no/such/socket", "tank", 0, 0, &error) && error == -ENOTCONN);
  CHECK(!thumper_connect(socket, "none", 0, 0, &error) && error == -ENXIO && strstr(thumper_message(), "none"));
  CHECK(!thumper_open(NULL, NULL, "/put", THUMPER_READ, 0, &error) && error == -EINVAL);
  CHECK(!thumper_open(client, NULL, NULL, THUMPER_READ, 0, &error) && error == -EINVAL);
  CHECK(!thumper_open(client, &many, "/put", THUMPER_READ, 0, NULL));
  CHECK(!thumper_open(client, NULL, "/../etc/passwd", THUMPER_READ, 0, &error) && error == -EINVAL);
  CHECK(thumper_put(client, NULL, "/none", 0, 0644, NULL, 5, 0) == -EINVAL);
  CHECK(thumper_put(client, NULL, "/none", 0, 0644, "x", SIZE_MAX, 0) == -EINVAL);
  CHECK(thumper_get(client, NULL, "/put", NULL, 5, NULL) == -EINVAL);
  CHECK(thumper_read(NULL, back, 1, 0) == -EINVAL && thumper_write(NULL, "x", 1, 0) == -EINVAL);
  CHECK(thumper_write_stable(NULL, "x", 1, 0) == -EINVAL && thumper_sync(NULL) == -EINVAL);
  CHECK(thumper_close(NULL, 1) == 0);
  CHECK(thumper_readdir(NULL, back, 1, NULL) == -EINVAL && thumper_rename(client, NULL, "/put", NULL) == -EINVAL);
  thumper_file *file = thumper_open(client, NULL, "/put", THUMPER_READ, 0, &error);
  CHECK(file && thumper_read(file, NULL, 1, 0) == -EINVAL && thumper_read(file, back, 9, UINT64_MAX - 3) <= 0);
  CHECK(thumper_read_pieces(file, NULL, 1, back) == -EINVAL);
  CHECK(thumper_close(file, 0) == 0);
  thumper_closedir(NULL);
  thumper_disconnect(NULL);
  return 0;
}

/* All of a file's bytes are `letter`, again and again. */
static int all_are(thumper_file *file, char letter) {
  static char got[4096];
  for (int time = 0; time < 300; time++) {
    CHECK(thumper_read(file, got, sizeof got, 0) == sizeof got);
    for (size_t i = 0; i < sizeof got; i++) CHECK(got[i] == letter);
  }
  return 0;
}

/* After a fork each process has what it asks for, and what one closes the other has still open. */
static int forked(thumper_client *client) {
  int error = 0, status = 1;
  char bytes[4096];
  thumper_file *files[2];
  for (int i = 0; i < 2; i++) {
    const char *path = i ? "/fork-b" : "/fork-a";
    memset(bytes, 'A' + i, sizeof bytes);
    CHECK(thumper_put(client, NULL, path, 0, 0644, bytes, sizeof bytes, 0) == 0);
    CHECK((files[i] = thumper_open(client, NULL, path, THUMPER_READ | THUMPER_WRITE, 0, &error)) != NULL);
  }
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    int wrong = all_are(files[1], 'B');
    for (int i = 0; i < 2; i++) wrong |= thumper_close(files[i], 0) != 0;
    thumper_disconnect(client);
    _exit(wrong);
  }
  CHECK(all_are(files[0], 'A') == 0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(all_are(files[0], 'A') == 0 && thumper_write(files[0], "x", 1, 0) == 1);
  /* The answer to what is under way is for who began it. */
  for (int i = 0; i < 2; i++) CHECK(thumper_begin(files[i], bytes, sizeof bytes, 0, 1) == 1);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    int wrong = thumper_settle(files[0]) != -EIO || thumper_read(files[0], back, 1, 0) != -EIO;
    for (int i = 0; i < 2; i++) wrong |= thumper_close(files[i], 1) != -EIO;
    wrong |= thumper_get(client, NULL, "/fork-a", back, 1, NULL) != 1;
    thumper_disconnect(client);
    _exit(wrong);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  /* Who waits for one that the other process has taken waits for ever. */
  alarm(10);
  for (int i = 0; i < 2; i++) CHECK(thumper_close(files[i], 1) == 0);
  alarm(0);
  return 0;
}

int main(int argc, char **argv) {
  int error = 1;
  if (argc != 3) return 2;
  for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * 7 >> 3);
  CHECK(thumper_abi() == THUMPER_ABI);
  thumper_client *client = thumper_connect(argv[1], argv[2], 4, 10000, &error);
  CHECK(client && error == 0);
  if (whole_files(client) || open_files(client) || names(client) || attributes(client) || nonsense(client, argv[1]) ||
      forked(client))
    return 1;
  thumper_disconnect(client);
  return 0;
}
