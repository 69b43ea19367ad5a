/* Preloaded into a program, its clock is off by the seconds in the file CLOCK_OFFSET; all other clocks are the machine's. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, clock, now);
  const char *name = getenv("CLOCK_OFFSET");
  FILE *file = failed || clock != CLOCK_REALTIME || name == NULL ? NULL : fopen(name, "re");
  if (file != NULL) {
    long seconds = 0;
    if (fscanf(file, "%ld", &seconds) == 1) now->tv_sec += seconds;
    fclose(file);
  }
  return failed;
}
