/* Join the hosts of a job: each appends its properties to a list in the job's store, and each computes the same table
 * from that list. There is no coordinator, so all detect the same contradiction. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "comm/join/membership_table.h"

/* Connect to the job's store, as soon as it is served; reports that it waits for it. AH_ETIMEOUT. */
int ah_membership_store(struct ah_store **out, const struct ah_store_options *place, const struct ah_membership *mine);

/* Exchange members through the store: sets count, mine, first and name of `out`. AH_EINVAL for a contradiction,
 * AH_ETIMEOUT names the missing ones. */
int ah_membership(struct ah_store *store, const struct ah_membership *mine, struct ah_hosts *out);

/* Does the resulting table have this host's ranks where they are? AH_EINVAL: a host was configured differently. */
int ah_membership_check(const struct ah_membership *mine, const struct ah_hosts *hosts);

/* The table as a text without blanks, and back; AH_EINVAL. */
enum { AH_HOSTS_TEXT = AH_HOSTS_MAX * (AH_HOST_NAME + 8) + 32 };
void ah_hosts_write(const struct ah_hosts *hosts, char *text, size_t room);
int ah_hosts_read(struct ah_hosts *hosts, const char *text);
