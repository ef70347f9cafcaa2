/*
 * directory - the C functions of the client library over a plain directory.
 *
 * Linked into the XRootD plug-in in the library's place, it is what the plug-in over a served pool is measured
 * against: the same plug-in, the same promises (what was written is on stable storage when close has returned), no
 * server. The "socket" is the directory; who asks is not looked at.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "thumper.h"

struct thumper_client { char top[2048]; };
struct thumper_file { int fd; };
struct thumper_dir { DIR *dir; };

typedef const thumper_client *client_t;
typedef const thumper_subject *who_t;

/* The host's path of one in the tree. */
#define AT(client, path) \
  char at[sizeof((client)->top) + 4096]; \
  snprintf(at, sizeof(at), "%s/%s", (client)->top, (path))

static int status(int result) { return result < 0 ? -errno : 0; }

static void fill(thumper_stat *to, const struct stat *from) {
  memset(to, 0, sizeof(*to));
  to->device = from->st_dev, to->object = from->st_ino, to->mode = from->st_mode;
  to->uid = from->st_uid, to->gid = from->st_gid, to->links = from->st_nlink;
  to->size = from->st_size, to->allocated = from->st_blocks * 512;
  to->atime = from->st_atim.tv_sec, to->atime_nanos = from->st_atim.tv_nsec;
  to->mtime = from->st_mtim.tv_sec, to->mtime_nanos = from->st_mtim.tv_nsec;
  to->ctime = from->st_ctim.tv_sec, to->ctime_nanos = from->st_ctim.tv_nsec;
}

/* Makes the directories that `at` is in. */
static void parents(char *at, size_t top) {
  for (char *end = at + top + 1; (end = strchr(end, '/')); end++) {
    *end = 0;
    mkdir(at, 0755);
    *end = '/';
  }
}

uint32_t thumper_abi(void) { return THUMPER_ABI; }
const char *thumper_message(void) { return strerror(errno); }

thumper_client *thumper_connect(const char *socket, const char *tree, uint32_t lanes, uint32_t patience, int *error) {
  (void)tree, (void)lanes, (void)patience;
  thumper_client *client = calloc(1, sizeof(*client));
  snprintf(client->top, sizeof(client->top), "%s", socket);
  *error = status(access(socket, R_OK | W_OK | X_OK));
  return client;
}

void thumper_disconnect(thumper_client *client) { free(client); }

thumper_file *thumper_open(client_t client, who_t who, const char *path, uint32_t flags, uint32_t mode, int *error) {
  (void)who;
  AT(client, path);
  int how = flags & THUMPER_WRITE ? O_RDWR : O_RDONLY;
  if (flags & THUMPER_CREATE) how |= O_CREAT;
  if (flags & THUMPER_NEW) how |= O_EXCL;
  if (flags & THUMPER_TRUNCATE) how |= O_TRUNC;
  if (flags & THUMPER_PARENTS) parents(at, strlen(client->top));
  int fd = open(at, how | O_CLOEXEC, mode & 07777);
  *error = status(fd);
  if (fd < 0) return NULL;
  thumper_file *file = malloc(sizeof(*file));
  file->fd = fd;
  return file;
}

int thumper_close(thumper_file *file, int stable) {
  if (!file) return 0;
  int synced = stable ? status(fsync(file->fd)) : 0;
  close(file->fd);
  free(file);
  return synced;
}

int64_t thumper_read(const thumper_file *file, void *buf, uintptr_t size, uint64_t offset) {
  ssize_t got = pread(file->fd, buf, size, offset);
  return got < 0 ? -errno : got;
}

/* XRootD is to read. */
thumper_lease *thumper_lend(const thumper_file *file, uint64_t offset, uintptr_t size, thumper_piece *pieces,
                            uintptr_t *count, int *fd) {
  (void)file, (void)offset, (void)size, (void)pieces, (void)count, (void)fd;
  return NULL;
}

void thumper_lease_end(thumper_lease *lease) { (void)lease; }

int64_t thumper_read_pieces(const thumper_file *file, const thumper_piece *pieces, uintptr_t count, void *buf) {
  char *to = buf;
  for (uintptr_t i = 0; i < count; to += pieces[i++].length)
    if (pread(file->fd, to, pieces[i].length, pieces[i].offset) != pieces[i].length) return -ESPIPE;
  return to - (char *)buf;
}

int64_t thumper_write(const thumper_file *file, const void *buf, uintptr_t size, uint64_t offset) {
  for (uintptr_t done = 0; done < size;) {
    ssize_t now = pwrite(file->fd, (const char *)buf + done, size - done, offset + done);
    if (now < 0) return -errno;
    done += now;
  }
  return size;
}

/* Nothing is to be won. */
int thumper_begin(const thumper_file *file, const void *buf, uintptr_t size, uint64_t offset, int stable) {
  (void)file, (void)buf, (void)size, (void)offset, (void)stable;
  return 0;
}

int thumper_settle(const thumper_file *file) {
  (void)file;
  return 0;
}

int thumper_finish(thumper_file *file, const void *buf, uintptr_t size, uint64_t offset, int stable) {
  int64_t written = thumper_write(file, buf, size, offset);
  int closed = thumper_close(file, stable);
  return written < 0 ? written : closed;
}

int thumper_sync(const thumper_file *file) { return status(fsync(file->fd)); }
int thumper_truncate_open(const thumper_file *file, uint64_t size) { return status(ftruncate(file->fd, size)); }

int thumper_stat_open(const thumper_file *file, thumper_stat *stat) {
  struct stat found;
  int result = status(fstat(file->fd, &found));
  if (!result) fill(stat, &found);
  return result;
}

/* Here asking is as cheap. */
int thumper_opened(const thumper_file *file, thumper_stat *stat) { return thumper_stat_open(file, stat); }

int thumper_stat_path(client_t client, who_t who, const char *path, int follow, thumper_stat *stat) {
  (void)who;
  AT(client, path);
  struct stat found;
  int result = status(fstatat(AT_FDCWD, at, &found, follow ? 0 : AT_SYMLINK_NOFOLLOW));
  if (!result) fill(stat, &found);
  return result;
}

thumper_dir *thumper_opendir(client_t client, who_t who, const char *path, int *error) {
  (void)who;
  AT(client, path);
  DIR *found = opendir(at);
  *error = found ? 0 : -errno;
  if (!found) return NULL;
  thumper_dir *dir = malloc(sizeof(*dir));
  dir->dir = found;
  return dir;
}

int thumper_readdir(const thumper_dir *dir, char *name, uintptr_t size, thumper_stat *stat) {
  struct dirent *entry;
  do entry = readdir(dir->dir);
  while (entry && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")));
  if (!entry) return 0;
  snprintf(name, size, "%s", entry->d_name);
  struct stat found;
  if (stat && fstatat(dirfd(dir->dir), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) == 0) fill(stat, &found);
  return 1;
}

void thumper_closedir(thumper_dir *dir) {
  if (dir) closedir(dir->dir);
  free(dir);
}

int thumper_mkdir(client_t client, who_t who, const char *path, uint32_t mode, int with_parents) {
  (void)who;
  AT(client, path);
  if (with_parents) parents(at, strlen(client->top));
  int result = status(mkdir(at, mode));
  return with_parents && result == -EEXIST ? 0 : result;
}

int thumper_unlink(client_t client, who_t who, const char *path) {
  (void)who;
  AT(client, path);
  return status(unlink(at));
}

int thumper_rmdir(client_t client, who_t who, const char *path) {
  (void)who;
  AT(client, path);
  return status(rmdir(at));
}

int thumper_rename(client_t client, who_t who, const char *from, const char *to) {
  (void)who;
  char target[sizeof(client->top) + 4096];
  snprintf(target, sizeof(target), "%s/%s", client->top, to);
  AT(client, from);
  return status(rename(at, target));
}

int thumper_truncate(client_t client, who_t who, const char *path, uint64_t size) {
  (void)who;
  AT(client, path);
  return status(truncate(at, size));
}

int thumper_chmod(client_t client, who_t who, const char *path, uint32_t mode) {
  (void)who;
  AT(client, path);
  return status(chmod(at, mode));
}

int thumper_set_mtime(client_t client, who_t who, const char *path, int64_t seconds, uint32_t nanos) {
  (void)who;
  AT(client, path);
  struct timespec times[2] = {{0, UTIME_OMIT}, {seconds, nanos}};
  return status(utimensat(AT_FDCWD, at, times, 0));
}

int64_t thumper_getxattr(client_t client, who_t who, const char *path, const char *name, void *value, uintptr_t size) {
  (void)who;
  AT(client, path);
  ssize_t got = getxattr(at, name, value, size);
  return got < 0 ? -errno : got;
}

int thumper_setxattr(client_t client, who_t who, const char *path, const char *name, const void *value, uintptr_t size) {
  (void)who;
  AT(client, path);
  return status(value ? setxattr(at, name, value, size, 0) : removexattr(at, name));
}

int64_t thumper_listxattr(client_t client, who_t who, const char *path, char *names, uintptr_t size) {
  (void)who;
  AT(client, path);
  ssize_t got = listxattr(at, names, size);
  return got < 0 ? -errno : got;
}

int thumper_space_of(client_t client, const char *path, thumper_space *space) {
  AT(client, path);
  struct statvfs found;
  int result = status(statvfs(at, &found));
  if (result) return result;
  memset(space, 0, sizeof(*space));
  space->total = found.f_blocks * found.f_frsize;
  space->free = found.f_bavail * found.f_frsize;
  space->used = space->total - found.f_bfree * found.f_frsize;
  return 0;
}
