/* A wall clock that is a day ahead and a day behind in turn, a second each; for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

static const long kDay = 86400;

int clock_gettime(clockid_t id, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  struct timespec steady;
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real(id, now);
  if (failed || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
  real(CLOCK_MONOTONIC, &steady);
  now->tv_sec += steady.tv_sec % 2 ? kDay : -kDay;
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec read;
  clock_gettime(CLOCK_REALTIME, &read);
  now->tv_sec = read.tv_sec;
  now->tv_usec = read.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec read;
  clock_gettime(CLOCK_REALTIME, &read);
  if (seconds) *seconds = read.tv_sec;
  return read.tv_sec;
}
