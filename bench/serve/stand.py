"""Storages to be measured side by side, each made of image files in one directory, with an xrootd on it if wanted.

`make(name, ..)` gives one of NAMES:

  thumper   a served raidz2 of ten images: xrootd with the plug-in; with a mount at .mounted
  logged    the same with a log device
  mount     the same pool: plain xrootd over the mount
  stable    the plug-in over a plain directory, with fsync at close (`directory.c` in the client library's place)
  plain     plain xrootd over a plain directory
  btrfs     plain xrootd over btrfs raid6 of ten loop devices; needs root
  ext4      plain xrootd over ext4 on one loop device; needs root

Plain xrootd promises nothing at close.
"""
import os, pwd, random, shutil, socket, subprocess, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ["thumper", "logged", "mount", "stable", "plain", "btrfs", "ext4"]
DISKS = 10
# As XRootD asks for them (`segsize`).
RECORD = "256K"
USER = "xrootd"
NOISE = random.Random(1).randbytes(4 << 20)
ROOT = os.geteuid() == 0
CONFIG = """xrd.port {port}
xrd.network nodnr norpipa
all.adminpath {top}/run
all.pidpath {top}/run
all.export /
xrootd.chksum max 2 adler32 crc32c md5
xrootd.async segsize 256k
ofs.persist off
{storage}
"""


def cmd(*words, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode:
        raise RuntimeError("%s: %s" % (" ".join(words), (done.stdout + done.stderr).strip()[:500]))
    return done.stdout


def until(done, what, seconds=60):
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise RuntimeError("%s: nothing came of it in %d s" % (what, seconds))
        time.sleep(0.05)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def memory(pid, *names):
    """Of a process, in MB: VmHWM is the most since it was last set back."""
    with open("/proc/%d/status" % pid) as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    return sum(int(fields[name].split()[0]) for name in names) * 1024 / 1e6


def cpu(pid):
    """Seconds of processor, of the process so far."""
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Stand:
    """A storage, and an xrootd on it."""

    def __init__(self, name, args, disk_bytes, mortal=()):
        self.name, self.args, self.disk_bytes, self.undo = name, args, disk_bytes, []
        self.mortal, self.lying = mortal, []
        self.server = self.xrootd = None
        self.top = tempfile.mkdtemp(prefix=name + ".", dir=args.dir)
        os.chmod(self.top, 0o755)
        self.files = self.top + "/files"
        os.mkdir(self.top + "/run")
        os.mkdir(self.files)
        self.own(self.top + "/run", self.files)

    def own(self, *paths):
        for path in paths if ROOT else []:
            shutil.chown(path, USER, pwd.getpwnam(USER).pw_gid)

    def start(self):
        getattr(self, self.name)()
        return self

    def images(self, count, size):
        """Written once, as ozbench does: a disk has its blocks already, and a page that is new costs more than its use."""
        tops = [self.huge_pages() if i in self.mortal else self.top for i in range(count)]
        paths = ["%s/d%02d" % (top, i) for i, top in enumerate(tops)]
        for path in paths:
            with open(path, "wb") as file:
                for at in range(0, size, len(NOISE)):
                    file.write(NOISE[: size - at])
        self.lying += paths
        return paths

    def huge_pages(self):
        """Where files are of huge pages, if that can be had. To free 300 MB of small ones takes 50 ms of a core, and holds up
        who writes there meanwhile: a disk that dies takes nobody's time."""
        at = self.top + "/huge"
        if not os.path.isdir(at):
            os.mkdir(at)
            if ROOT:
                cmd("mount", "-t", "tmpfs", "-o", "huge=always", "none", at)
                self.undo.insert(0, ["umount", at])
        return at

    def lose(self):
        """The mortal disks die: there is nothing on them, and, where they lie by themselves, nothing can be written."""
        at = self.huge_pages()
        for _ in range(100):
            for number in self.mortal:
                os.truncate(self.disks[number], 0)
            # Refused if somebody has just written.
            if not ROOT or subprocess.run(["mount", "-o", "remount,size=4k", at], stderr=subprocess.DEVNULL).returncode == 0:
                return
        raise RuntimeError("the disks at %s do not die" % at)

    # ---- storages ----

    def thumper(self, *more):
        self.socket = self.top + "/socket"
        self.environment = dict(os.environ, THUMPER_STATE=self.top + "/pools", THUMPER_SOCKET=self.socket)
        self.disks = self.images(DISKS, self.disk_bytes)
        self.serve()
        # As README and docs/xrootd.md say.
        props = ["-O", "recordsize=" + RECORD, "-O", "dnodesize=auto"]
        self.command("zpool", "create", "-m", self.files, "-o", "ashift=12", *props, "tank", "raidz2", *self.disks, *more)
        self.command("zfs", "mount", "-a")
        self.own(self.files)

    mount = thumper

    def logged(self):
        log = self.top + "/log"
        with open(log, "wb") as file:
            file.truncate(1 << 30)
        self.thumper("log", log)

    def command(self, *words):
        return cmd(self.args.thumper, *words, env=self.environment)

    def serve(self, *pools):
        words = [self.args.thumper, "serve", "--mount", "-s", self.socket] + (["-u", USER] if ROOT else [])
        words += ["--memory", self.args.memory] if self.args.memory else []
        with open(self.top + "/serve.log", "a") as log:
            self.server = subprocess.Popen(words + list(pools), env=self.environment, stderr=log, stdout=log)
        until(lambda: os.path.exists(self.socket), "thumper serve")

    def stable(self):
        pass

    plain = stable

    def mounted(self, devices, make):
        for path in devices:
            loop = cmd("losetup", "--find", "--show", path).strip()
            self.undo.insert(0, ["losetup", "-d", loop])
            make.append(loop)
        cmd(*make)
        self.device = make[-1]
        cmd("mount", "-o", "noatime", self.device, self.files)
        self.undo.insert(0, ["umount", self.files])
        self.own(self.files)

    def btrfs(self):
        self.mounted(self.images(DISKS, self.disk_bytes), ["mkfs.btrfs", "-f", "-d", "raid6", "-m", "raid1c3"])

    def ext4(self):
        self.mounted(self.images(1, DISKS * self.disk_bytes), ["mkfs.ext4", "-F", "-q"])

    # ---- what is cached goes ----

    def cool(self):
        """Nothing that was written is in memory any more."""
        if self.server:
            self.command("zpool", "export", "tank")
            self.command("zpool", "import", "-d", self.top, "tank")
            until(lambda: os.path.ismount(self.files), "the mount")
        elif self.name in ("btrfs", "ext4"):
            cmd("umount", self.files)
            cmd("mount", "-o", "noatime", self.device, self.files)

    # ---- xrootd ----

    def export(self, plugin=None):
        """Starts an xrootd; with the plug-in of this storage if none is named."""
        plugins = {"thumper": self.args.plugin, "logged": self.args.plugin, "stable": self.args.directory_plugin}
        plugin = plugin or plugins.get(self.name)
        storage = "oss.localroot " + self.files
        if plugin:
            shutil.copy(plugin, self.top + "/libXrdThumper-5.so")
            at = self.socket if self.server else self.files
            storage = "ofs.osslib +cksio +xattr %s/libXrdThumper.so pool=tank socket=%s\n" % (self.top, at)
            storage += "xrootd.fslib ++ %s/libXrdThumper.so" % self.top
        port, log = free_port(), self.top + "/run/log"
        with open(self.top + "/xrootd.cf", "w") as file:
            file.write(CONFIG.format(port=port, top=self.top, storage=storage))
        words = ["xrootd"] + (["-R", USER] if ROOT else []) + ["-c", self.top + "/xrootd.cf", "-l", log]
        with open(self.top + "/out", "w") as out:
            self.xrootd = subprocess.Popen(words, cwd=self.top + "/run", stdout=out, stderr=out)

        def is_there():
            if self.xrootd.poll() is not None:
                raise RuntimeError("xrootd ended: " + open(log).read()[-1000:])
            return os.path.exists(log) and "initialization completed." in open(log).read().rsplit("xrootd ", 1)[-1]

        until(is_there, "xrootd")
        self.url = "root://127.0.0.1:%d" % port
        return self

    def processes(self):
        found = {"xrootd": self.xrootd, "server": self.server}
        return {name: process.pid for name, process in found.items() if process}

    def end(self):
        for process in (self.xrootd, self.server):
            if process:
                end(process)
        for words in self.undo:
            for _ in range(20):
                if subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0:
                    break
                time.sleep(0.25)
        shutil.rmtree(self.top, ignore_errors=True)


def end(process):
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def can(name):
    """Are the means there?"""
    return name not in ("btrfs", "ext4") or ROOT and os.path.exists("/dev/loop-control")


def options(parser):
    parser.add_argument("--dir", required=True, help="where the images are")
    parser.add_argument("--thumper", required=True, help="the program")
    parser.add_argument("--plugin", required=True, help="the plug-in with the client library")
    parser.add_argument("--directory-plugin", required=True, help="the plug-in with directory.c")
    parser.add_argument("--memory", default="512M", help="what `thumper serve` may take")
    parser.add_argument("--rounds", type=int, default=3)
