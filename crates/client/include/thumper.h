/* The client of a served Thumper pool, for C. Made from src/c/: change that. */

#ifndef THUMPER_H
#define THUMPER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * The version of these functions: of a library with another first number a program must not be used.
 */
#define THUMPER_ABI 1

/**
 * Open for reading.
 */
#define THUMPER_READ 1

/**
 * Open for writing.
 */
#define THUMPER_WRITE 2

/**
 * Made if it is not there.
 */
#define THUMPER_CREATE 4

/**
 * With [`THUMPER_CREATE`]: an error if it is there.
 */
#define THUMPER_NEW 8

/**
 * Emptied.
 */
#define THUMPER_TRUNCATE 16

/**
 * With [`THUMPER_CREATE`]: directories on the way are made, too.
 */
#define THUMPER_PARENTS 32

/**
 * With [`THUMPER_WRITE`]: the file's digests are made meanwhile, and kept with it as XRootD keeps them.
 */
#define THUMPER_DIGESTS 64

/**
 * With [`THUMPER_WRITE`]: -EIO if some of it may be lost with a server that died, and it is not emptied.
 */
#define THUMPER_UNBROKEN 128

/**
 * With [`THUMPER_READ`] alone: a file that is small is read as it is opened, for who reads it at once.
 */
#define THUMPER_SOON 256

/**
 * A client of one tree. Threads may share it.
 */
typedef struct thumper_client thumper_client;

/**
 * An open directory. Threads may share it.
 */
typedef struct thumper_dir thumper_dir;

/**
 * An open file. Threads may share it.
 */
typedef struct thumper_file thumper_file;

/**
 * Bytes of a file where the server has them.
 */
typedef struct thumper_lease thumper_lease;

/**
 * For whom something is done.
 */
typedef struct {
  /**
   * His number; 0 may do everything.
   */
  uint32_t uid;
  /**
   * His group.
   */
  uint32_t gid;
  /**
   * His other groups, `group_count` of them; may be null if there are none.
   */
  const uint32_t *groups;
  /**
   * How many other groups.
   */
  uintptr_t group_count;
} thumper_subject;

/**
 * Attributes of a file.
 */
typedef struct {
  /**
   * A number for the file system.
   */
  uint64_t device;
  /**
   * Number of the object.
   */
  uint64_t object;
  /**
   * With the number it names one file for ever.
   */
  uint64_t generation;
  /**
   * Type and permissions.
   */
  uint32_t mode;
  /**
   * Owner.
   */
  uint32_t uid;
  /**
   * Group.
   */
  uint32_t gid;
  /**
   * Names that it has.
   */
  uint64_t links;
  /**
   * Size in bytes.
   */
  uint64_t size;
  /**
   * Space on disk in bytes.
   */
  uint64_t allocated;
  /**
   * Last access: seconds.
   */
  int64_t atime;
  /**
   * Last change of the contents: seconds.
   */
  int64_t mtime;
  /**
   * Last change: seconds.
   */
  int64_t ctime;
  /**
   * Nanoseconds of these.
   */
  uint32_t atime_nanos;
  /**
   * Nanoseconds.
   */
  uint32_t mtime_nanos;
  /**
   * Nanoseconds.
   */
  uint32_t ctime_nanos;
} thumper_stat;

/**
 * A piece of a file.
 */
typedef struct {
  /**
   * Offset in bytes.
   */
  uint64_t offset;
  /**
   * Length in bytes.
   */
  uint32_t length;
} thumper_piece;

/**
 * Space of a file system, in bytes.
 */
typedef struct {
  /**
   * All that there is for it.
   */
  uint64_t total;
  /**
   * What it could still write.
   */
  uint64_t free;
  /**
   * What it uses.
   */
  uint64_t used;
  /**
   * Its quota; 0: none.
   */
  uint64_t quota;
} thumper_space;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version that this library has: it must be `THUMPER_ABI`.
 */
uint32_t thumper_abi(void);

/**
 * Why the last call of this thread failed, in words; valid until its next call.
 */
const char *thumper_message(void);

/**
 * Connects to the server at `socket` for `tree` (`POOL[/FS]`), with at most `lanes`
 * connections (0: 16); a call waits `patience_ms` for a server that has gone. Null: it failed, with minus a
 * number of errno(3) in `error`.
 *
 * # Safety
 * The strings are strings; `error` is null or has room for a number.
 */
thumper_client *thumper_connect(const char *socket,
                                const char *tree,
                                uint32_t lanes,
                                uint32_t patience_ms,
                                int *error);

/**
 * Ends a client. Files of it that are open stay so.
 *
 * # Safety
 * `client` is null, or came from `thumper_connect` and is not used any more.
 */
void thumper_disconnect(thumper_client *client);

/**
 * Opens a file. Null: it failed, with minus a number of errno(3) in `error`.
 *
 * # Safety
 * `client` is one, `who` is null or a subject, `path` a string, `error` null or room for a number.
 */
thumper_file *thumper_open(const thumper_client *client,
                           const thumper_subject *who,
                           const char *path,
                           uint32_t flags,
                           uint32_t mode,
                           int *error);

/**
 * Lets go of a file; with `stable` not 0 what was written is on stable storage then. It is gone in any case.
 *
 * # Safety
 * `file` is null, or came from `thumper_open` and is not used any more.
 */
int thumper_close(thumper_file *file,
                  int stable);

/**
 * Puts a file as a whole: makes it, or empties what is there, and writes `size` bytes; with `stable` not 0 it is on
 * stable storage then. Of the flags, `THUMPER_NEW`, `THUMPER_PARENTS` and `THUMPER_DIGESTS` count.
 *
 * # Safety
 * `client` is one, `who` is null or a subject, `path` a string; there are `size` bytes at `buf`.
 */
int thumper_put(const thumper_client *client,
                const thumper_subject *who,
                const char *path,
                uint32_t flags,
                uint32_t mode,
                const void *buf,
                uintptr_t size,
                int stable);

/**
 * Reads the beginning of a file, at most `size` bytes; how many there were. Its attributes, which say how large it is,
 * go to `stat`, if that is not null.
 *
 * # Safety
 * `client` is one, `who` is null or a subject, `path` a string; there is room for `size` bytes at `buf`, which nobody
 * else uses; `stat` is null or has room.
 */
int64_t thumper_get(const thumper_client *client,
                    const thumper_subject *who,
                    const char *path,
                    void *buf,
                    uintptr_t size,
                    thumper_stat *stat);

/**
 * Reads `size` bytes from `offset` on; how many there were: fewer only at the end of the file.
 *
 * # Safety
 * `file` is open; there is room for `size` bytes at `buf`, which nobody else uses.
 */
int64_t thumper_read(const thumper_file *file, void *buf, uintptr_t size, uint64_t offset);

/**
 * The `size` bytes from `offset` on where the server has them, for who sends them on from there: at most `*count` pieces,
 * each with its offset in the file `*fd` and its length; `*count` says how many there are. They stay as they are until the
 * lease ends, and `*fd` is open as long. Null: they are not to be had so now, and are to be read.
 *
 * # Safety
 * `file` is one; at `pieces` there is room for `*count` of them; `count` and `fd` are numbers. Nobody else uses these.
 */
thumper_lease *thumper_lend(const thumper_file *file,
                            uint64_t offset,
                            uintptr_t size,
                            thumper_piece *pieces,
                            uintptr_t *count,
                            int *fd);

/**
 * Ends a lease.
 *
 * # Safety
 * `lease` is null, or came from `thumper_lend` and is not used any more.
 */
void thumper_lease_end(thumper_lease *lease);

/**
 * Reads `count` pieces, all of each, one behind the other into `buf`; how many bytes. ESPIPE where one reaches
 * beyond the end.
 *
 * # Safety
 * `file` is open; there are `count` pieces, and room for the bytes of all of them at `buf`, which nobody else uses.
 */
int64_t thumper_read_pieces(const thumper_file *file,
                            const thumper_piece *pieces,
                            uintptr_t count,
                            void *buf);

/**
 * Writes all of `size` bytes at `offset`; `size`.
 *
 * # Safety
 * `file` is open; there are `size` bytes at `buf`.
 */
int64_t thumper_write(const thumper_file *file, const void *buf, uintptr_t size, uint64_t offset);

/**
 * Writes all of `size` bytes at `offset`, and puts all that was written on stable storage; `size`.
 *
 * # Safety
 * `file` is open; there are `size` bytes at `buf`.
 */
int64_t thumper_write_stable(const thumper_file *file,
                             const void *buf,
                             uintptr_t size,
                             uint64_t offset);

/**
 * Begins to write all of `size` bytes at `offset`, and with `stable` not 0 to put all that was written on stable storage, if
 * few ask the server for anything: 1 if it did, 0 if not. They are copied. Whatever is asked of the file next has it ended
 * before; if that fails so does everything from then on, `thumper_close`, too.
 *
 * # Safety
 * `file` is open; there are `size` bytes at `buf`.
 */
int thumper_begin(const thumper_file *file,
                  const void *buf,
                  uintptr_t size,
                  uint64_t offset,
                  int stable);

/**
 * Waits for what was begun by `thumper_begin`, if anything was.
 *
 * # Safety
 * `file` is open.
 */
int thumper_settle(const thumper_file *file);

/**
 * Writes the last `size` bytes, at `offset`, and lets go of a file; with `stable` not 0 all that was written is on
 * stable storage then. It is gone in any case.
 *
 * # Safety
 * `file` came from `thumper_open` and is not used any more; there are `size` bytes at `buf`.
 */
int thumper_finish(thumper_file *file,
                   const void *buf,
                   uintptr_t size,
                   uint64_t offset,
                   int stable);

/**
 * Puts what was written on stable storage.
 *
 * # Safety
 * `file` is open.
 */
int thumper_sync(const thumper_file *file);

/**
 * Sets the size of an open file.
 *
 * # Safety
 * `file` is open.
 */
int thumper_truncate_open(const thumper_file *file, uint64_t size);

/**
 * Attributes of an open file as they were when it was opened; the server is not asked.
 *
 * # Safety
 * `file` is open; there is room at `stat`.
 */
int thumper_opened(const thumper_file *file, thumper_stat *stat);

/**
 * Attributes of an open file.
 *
 * # Safety
 * `file` is open; there is room at `stat`.
 */
int thumper_stat_open(const thumper_file *file, thumper_stat *stat);

/**
 * Attributes of a file; of a symbolic link with `follow` not 0 those of what it leads to.
 *
 * # Safety
 * `client` is one, `who` null or a subject, `path` a string; there is room at `stat`.
 */
int thumper_stat_path(const thumper_client *client,
                      const thumper_subject *who,
                      const char *path,
                      int follow,
                      thumper_stat *stat);

/**
 * Opens a directory. Null: it failed, with minus a number of errno(3) in `error`.
 *
 * # Safety
 * `client` is one, `who` null or a subject, `path` a string, `error` null or room for a number.
 */
thumper_dir *thumper_opendir(const thumper_client *client,
                             const thumper_subject *who,
                             const char *path,
                             int *error);

/**
 * The next entry: its name, with a NUL, and its attributes. 1, or 0 at the end. ERANGE if the name is longer than there is
 * room for: then the entry is still the next.
 *
 * # Safety
 * `dir` is open; there is room for `size` bytes at `name`, and null or room at `stat`.
 */
int thumper_readdir(const thumper_dir *dir,
                    char *name,
                    uintptr_t size,
                    thumper_stat *stat);

/**
 * Lets go of a directory.
 *
 * # Safety
 * `dir` is null, or came from `thumper_opendir` and is not used any more.
 */
void thumper_closedir(thumper_dir *dir);

/**
 * Makes a directory; with `parents` not 0 those on the way too, and one that is there is fine.
 *
 * # Safety
 * `client` is one, `who` null or a subject, `path` a string.
 */
int thumper_mkdir(const thumper_client *client,
                  const thumper_subject *who,
                  const char *path,
                  uint32_t mode,
                  int parents);

/**
 * Removes a file or symbolic link.
 *
 * # Safety
 * `client` is one, `who` null or a subject, `path` a string.
 */
int thumper_unlink(const thumper_client *client, const thumper_subject *who, const char *path);

/**
 * Removes an empty directory.
 *
 * # Safety
 * `client` is one, `who` null or a subject, `path` a string.
 */
int thumper_rmdir(const thumper_client *client, const thumper_subject *who, const char *path);

/**
 * Renames; what is there is replaced.
 *
 * # Safety
 * `client` is one, `who` null or a subject, the paths are strings.
 */
int thumper_rename(const thumper_client *client,
                   const thumper_subject *who,
                   const char *from,
                   const char *to);

/**
 * Sets the size of a file.
 *
 * # Safety
 * `client` is one, `who` null or a subject, `path` a string.
 */
int thumper_truncate(const thumper_client *client,
                     const thumper_subject *who,
                     const char *path,
                     uint64_t size);

/**
 * Sets permissions.
 *
 * # Safety
 * `client` is one, `who` null or a subject, `path` a string.
 */
int thumper_chmod(const thumper_client *client,
                  const thumper_subject *who,
                  const char *path,
                  uint32_t mode);

/**
 * Sets the time of the last change of the contents, in seconds and nanoseconds.
 *
 * # Safety
 * `client` is one, `who` null or a subject, `path` a string.
 */
int thumper_set_mtime(const thumper_client *client,
                      const thumper_subject *who,
                      const char *path,
                      int64_t seconds,
                      uint32_t nanos);

/**
 * The value of an extended attribute, by its full name: its length; with `size` 0 nothing is copied. ERANGE if
 * it is longer than `size`.
 *
 * # Safety
 * `client` is one, `who` null or a subject, `path` and `name` are strings; there is room for `size` bytes at `value`.
 */
int64_t thumper_getxattr(const thumper_client *client,
                         const thumper_subject *who,
                         const char *path,
                         const char *name,
                         void *value,
                         uintptr_t size);

/**
 * Sets an extended attribute; with a null `value` it is removed.
 *
 * # Safety
 * `client` is one, `who` null or a subject, `path` and `name` are strings; there are `size` bytes at `value`.
 */
int thumper_setxattr(const thumper_client *client,
                     const thumper_subject *who,
                     const char *path,
                     const char *name,
                     const void *value,
                     uintptr_t size);

/**
 * Names of the extended attributes, each with its NUL: bytes of all of them; with `size` 0 nothing is copied. ERANGE
 * if they are more than `size`.
 *
 * # Safety
 * `client` is one, `who` null or a subject, `path` a string; there is room for `size` bytes at `names`.
 */
int64_t thumper_listxattr(const thumper_client *client,
                          const thumper_subject *who,
                          const char *path,
                          char *names,
                          uintptr_t size);

/**
 * Space of the file system that a path is in.
 *
 * # Safety
 * `client` is one, `path` a string; there is room at `space`.
 */
int thumper_space_of(const thumper_client *client, const char *path, thumper_space *space);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* THUMPER_H */
