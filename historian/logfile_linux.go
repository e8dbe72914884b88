package historian

import "golang.org/x/sys/unix"

// forgetPages drops the clean pages of a file from the page cache. It is advice: when it fails, only a
// statistic is worse.
func forgetPages(fd uintptr) {
	_ = unix.Fadvise(int(fd), 0, 0, unix.FADV_DONTNEED)
}
