#!/bin/sh
# Mail on what an administrator should know of: a disk that is given up, gone, slow or back, data that is lost,
# a pool that is suspended or goes on. For `thumper serve --hooks DIR`: copy it there, and make it executable.
#
# Beside it a file mail.conf may say otherwise than here:
#   MAIL_TO=root              whom to write to
#   SENDMAIL=sendmail         what takes a message with `-t`
#   INTERVAL=3600             seconds in which the same is not told of a device once more, if nothing else was
#   STAMPS=/run/thumper/mail  where it is kept what was told last, and when
set -eu
umask 077
MAIL_TO=root SENDMAIL=sendmail INTERVAL=3600 STAMPS=/run/thumper/mail
if [ -f "${ZED_ZEDLET_DIR:-.}/mail.conf" ]; then . "${ZED_ZEDLET_DIR:-.}/mail.conf"; fi

# Values are printed, never run; one line each.
line() { printf '%s' "$1" | tr -c '[:print:]' ' '; }
pool=$(line "${ZEVENT_POOL:-?}")
device=$(line "${ZEVENT_VDEV_PATH:-${ZEVENT_VDEV_GUID:-}}")
# The pool's own guid stands for the pool.
if [ "$device" = "${ZEVENT_POOL_GUID:-}" ]; then device=; fi
state=$(line "${ZEVENT_VDEV_STATE_STR:-}")
about=${ZEVENT_SUBCLASS:-}
case $about in
  statechange)
    about=state what="${device:-the pool} is $state" ;;
  io_failure)
    about=state what="the pool is suspended" ;;
  data)
    what="blocks are lost" ;;
  delay)
    about=speed what="$device is slow: its ${ZEVENT_SLOW_WHAT:-I/Os} take $((${ZEVENT_ZIO_DELAY:-0} / 1000000)) ms, \
its siblings' $((${ZEVENT_SLOW_SIBLINGS_DELAY:-0} / 1000000)) ms" ;;
  vdev_clear)
    if [ -n "${ZEVENT_SLOW_WHAT:-}" ]; then
      about=speed what="$device keeps up again"
    else
      what="errors of $device are forgotten"
    fi ;;
  *)
    exit 0 ;;
esac

# What was told last of this, and lately, is not told again.
mkdir -p "$STAMPS"
stamp=$STAMPS/$(printf '%s' "$about $pool $device" | cksum | tr ' ' -)
said="$ZEVENT_SUBCLASS $state"
now=$(date +%s)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$said" ] && [ $((now - $(date -r "$stamp" +%s))) -lt "$INTERVAL" ]; then
  exit 0
fi

{
  printf 'To: %s\nSubject: [thumper] %s: %s\n\n' "$MAIL_TO" "$pool" "$what"
  printf 'Pool %s on %s: %s.\n\n' "$pool" "$(hostname)" "$what"
  printf 'time:   %s\nclass:  %s\nevent:  %s\n' \
    "${ZEVENT_TIME_STRING:-?}" "${ZEVENT_CLASS:-?}" "${ZEVENT_EID:-?}"
  if [ -n "$device" ]; then printf 'device: %s\n' "$device"; fi
  if [ -n "${ZEVENT_REASON:-}" ]; then printf 'reason: %s\n' "$(line "$ZEVENT_REASON")"; fi
  printf '\nMore: thumper zpool status %s; thumper zpool events -v %s\n' "$pool" "$pool"
} | "$SENDMAIL" -t
# Only now: what could not be sent is told the next time.
printf '%s' "$said" > "$stamp"
