/* What the processes of a job know and nobody else does: whoever would join it over the network has to show that. */
#ifndef AH_COMM_SECRET_H
#define AH_COMM_SECRET_H

#include <stdbool.h>
#include <stddef.h>

enum { AH_SECRET = 256, AH_SECRET_LEAST = 16 };

struct ah_secret {
    char text[AH_SECRET + 1];
    size_t bytes; /* 0: there is none */
    bool open;    /* somebody said that there is to be none */
};

/* From the first of: `file` (NULL: nobody named one), ACCELHOST_SECRET, the file of ACCELHOST_SECRET_FILE, what Open
 * MPI gives a job's processes, the user's own file ($XDG_CONFIG_HOME or ~/.config, accelhost/secret) when it is there.
 * A file's name `none` means that there is to be none. AH_EINVAL when it is too short, or others may read the file. */
int ah_secret_find(struct ah_secret *out, const char *file);
/* AH_EINVAL, which tells how to make one, where a store at that address would be open to others without. */
int ah_secret_check(const struct ah_secret *secret, const char *host);

#endif
