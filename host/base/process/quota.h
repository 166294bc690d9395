/* The processor time that the system grants this process: the quotas of its control groups (containers, Slurm). */
#pragma once

/* Processors that the quotas of this process's control group and of the groups around it amount to, the least of them,
 * such as 1.5; 0 without a quota. Reads /proc/self/cgroup and /sys/fs/cgroup below `root` ("" but in tests). */
double ah_processor_quota(const char *root);
