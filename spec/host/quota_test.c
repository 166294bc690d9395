/* Quotas of processor time, in folders laid out like a system's /proc and /sys. */
#include "base/process/quota.h"

#include <libgen.h>
#include <stdlib.h>

#include "base/io/folder.h"
#include "test.h"

enum { FILES = 5 };

struct file {
    const char *path, *text;
};

/* The quota that a system with these files grants. */
static double quota_with(const struct file *files)
{
    char root[] = "/tmp/accelhost-quota-XXXXXX", path[256], folder[256];
    if (!mkdtemp(root))
        return -1;
    for (int i = 0; i < FILES && files[i].path; i++) {
        snprintf(path, sizeof path, "%s/%s", root, files[i].path);
        snprintf(folder, sizeof folder, "%s", path);
        CHECK_OK(ah_folder_make(dirname(folder)));
        FILE *file = fopen(path, "w");
        if (file) {
            fputs(files[i].text, file);
            fclose(file);
        }
    }
    double quota = ah_processor_quota(root);
    ah_folder_remove(root, NULL);
    return quota;
}
#define QUOTA_WITH(...) quota_with((const struct file[FILES]){__VA_ARGS__})

AH_TEST(quota_of_version_2_is_read_from_the_process_group)
{
    CHECK_NEAR(QUOTA_WITH({"proc/self/cgroup", "0::/user.slice/job\n"},
                          {"sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n"}), 1.5, 1e-12);
    CHECK(QUOTA_WITH({"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "max 100000\n"}) == 0);
}

AH_TEST(quota_is_the_least_of_the_group_and_those_around_it)
{
    CHECK_NEAR(QUOTA_WITH({"proc/self/cgroup", "0::/a/b/c\n"}, {"sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n"},
                          {"sys/fs/cgroup/a/cpu.max", "200000 100000\n"}), 2, 1e-12);
}

AH_TEST(quota_of_a_container_is_that_of_the_root_that_it_sees)
{
    CHECK_NEAR(QUOTA_WITH({"proc/self/cgroup", "0::/docker/0123\n"}, {"sys/fs/cgroup/cpu.max", "50000 100000\n"}),
               0.5, 1e-12);
    CHECK_NEAR(QUOTA_WITH({"proc/self/cgroup", "4:memory:/docker/0123\n3:cpu,cpuacct:/docker/0123\n"},
                          {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n"},
                          {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}), 3, 1e-12);
}

AH_TEST(quota_of_version_1_is_read_below_either_name_of_its_folder)
{
    CHECK_NEAR(QUOTA_WITH({"proc/self/cgroup", "3:cpuacct,cpu:/job\n"},
                          {"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "250000\n"},
                          {"sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"}), 2.5, 1e-12);
    CHECK(QUOTA_WITH({"proc/self/cgroup", "3:cpu:/\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                     {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}) == 0);
    CHECK(QUOTA_WITH({"proc/self/cgroup", "3:cpuset:/\n"}, {"sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "100000\n"},
                     {"sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000\n"}) == 0);
}

AH_TEST(quota_is_none_where_files_are_missing_or_damaged)
{
    CHECK(QUOTA_WITH({NULL, NULL}) == 0);
    CHECK(QUOTA_WITH({"proc/self/cgroup", "0::/a\n"}) == 0);
    CHECK(QUOTA_WITH({"proc/self/cgroup", "nonsense\n:\n::\n0:\n0::a\n0::/a"},
                     {"sys/fs/cgroup/a/cpu.max", "x y"}) == 0);
    CHECK(QUOTA_WITH({"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "100000 0\n"}) == 0);
    CHECK(QUOTA_WITH({"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "-5 100000\n"}) == 0);
}
