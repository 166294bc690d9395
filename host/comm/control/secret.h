/* The shared secret of a job's processes: a process that joins over the network proves that it knows it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { AH_SECRET = 256, AH_SECRET_LEAST = 16 };

struct ah_secret {
    char text[AH_SECRET + 1];
    size_t bytes; /* 0: there is none */
    bool open;    /* explicitly configured to have none */
};

/* Read the job's secret from the first of: `file` (NULL: not configured), ACCELHOST_SECRET, the file of
 * ACCELHOST_SECRET_FILE, the variable `key` of the environment (NULL: none), the user's own file ($XDG_CONFIG_HOME or
 * ~/.config, accelhost/secret) if it exists; empty without any. The file name `none` sets `open`. AH_EINVAL for a
 * secret that is too short or too long, or a file that other users may read. */
int ah_secret_find(struct ah_secret *out, const char *file, const char *key);
/* Remove ACCELHOST_SECRET from this process's environment, once it was read: programs that it starts do not need it. */
void ah_secret_forget(void);
/* If none was found and it is not `open`: AH_EINVAL with the remedy for a store at an address that other hosts reach.
 * For one on loopback, which other users of this host reach, read the user's own secret of this host, which the first
 * call writes to $XDG_RUNTIME_DIR/accelhost-secret, else `secret-HOST` in the folder of the user's file. */
int ah_secret_need(struct ah_secret *secret, const char *host);
/* 48 random digits. AH_EIO. */
int ah_secret_draw(struct ah_secret *out);
