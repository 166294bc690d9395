/* Removal of folders: files that are removed, and files that have to stay. */
#include "test.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io/folder.h"

static char root[] = "/tmp/accelhost-folder-XXXXXX";

static const char *folder_at(const char *name)
{
    static char path[4][512];
    static int turn;
    char *out = path[turn++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", root, name);
    return out;
}

static bool folder_has(const char *name)
{
    struct stat info;
    return lstat(folder_at(name), &info) == 0;
}

static void make_file(const char *name)
{
    FILE *file = fopen(folder_at(name), "w");
    REQUIRE(file && fclose(file) == 0);
}

/* A folder "mine" with two files below, and one "precious" next to it. */
static void folder_enter(void)
{
    snprintf(root + sizeof root - 7, 7, "XXXXXX");
    REQUIRE(mkdtemp(root));
    REQUIRE(!mkdir(folder_at("mine"), 0777) && !mkdir(folder_at("mine/deep"), 0777) &&
            !mkdir(folder_at("precious"), 0777));
    make_file("mine/one");
    make_file("mine/deep/two");
    make_file("precious/thesis");
}

static void folder_leave(void)
{
    CHECK_OK(ah_folder_remove(root, NULL));
    CHECK(!folder_has(""));
}

AH_TEST(folder_removal_follows_no_link)
{
    folder_enter();
    REQUIRE(!symlink("../precious", folder_at("mine/inside")) &&
            !symlink("../../precious", folder_at("mine/deep/below")));
    REQUIRE(!symlink("../precious/thesis", folder_at("mine/to_a_file")) &&
            !symlink("nowhere", folder_at("mine/dangling")));
    REQUIRE(!symlink("mine", folder_at("link")) && !symlink(".", folder_at("parent")));
    CHECK_FAILS(ah_folder_remove(folder_at("link"), NULL), AH_ESTATE, "/link' is a link");
    CHECK_FAILS(ah_folder_remove(folder_at("link/"), NULL), AH_ESTATE, "/link/' is a link");
    CHECK(folder_has("mine/one") && folder_has("mine/deep/two"));
    CHECK_OK(ah_folder_remove(folder_at("parent/mine"), NULL));
    CHECK(!folder_has("mine") && folder_has("link") && folder_has("precious/thesis"));
    CHECK_OK(ah_folder_remove(folder_at("mine"), NULL));
    folder_leave();
}

static const char *keep_two(void *context, const struct ah_folder_entry *entry)
{
    ++*(int *)context;
    return strcmp(entry->name, "deep/two") ? NULL : "is dear";
}

AH_TEST(folder_removal_is_all_or_nothing)
{
    int asked = 0;
    struct ah_folder_rule rule = {.keeps = keep_two, .context = &asked, .last = "one"};
    folder_enter();
    CHECK_FAILS(ah_folder_remove(folder_at("mine"), &rule), AH_ESTATE, "/mine': 'deep/two' in it is dear");
    CHECK_FAILS(ah_folder_check(folder_at("mine"), &rule), AH_ESTATE, "/mine': 'deep/two' in it is dear");
    CHECK(asked > 0 && folder_has("mine/one") && folder_has("mine/deep/two"));
    REQUIRE(unlink(folder_at("mine/deep/two")) == 0);
    CHECK_OK(ah_folder_check(folder_at("mine"), &rule));
    CHECK(folder_has("mine/one") && folder_has("mine/deep"));
    CHECK_OK(ah_folder_remove(folder_at("mine"), &rule));
    CHECK(!folder_has("mine"));
    make_file("file");
    CHECK_FAILS(ah_folder_remove(folder_at("file"), NULL), AH_ESTATE, "/file' is no folder");
    CHECK_FAILS(ah_folder_remove("/", NULL), AH_EIO, "not the name of a folder");
    folder_leave();
}

AH_TEST(folder_removal_handles_many_files_and_stops_at_great_depth)
{
    char name[300] = "mine";
    folder_enter();
    for (int i = 0; i < 3000; i++) {
        char file[40];
        snprintf(file, sizeof file, "mine/deep/%d", i);
        make_file(file);
    }
    CHECK_OK(ah_folder_remove(folder_at("mine"), NULL));
    CHECK(!folder_has("mine"));
    REQUIRE(mkdir(folder_at("mine"), 0777) == 0);
    for (int i = 0; i < 70; i++)
        REQUIRE(mkdir(folder_at(strcat(name, "/d")), 0777) == 0);
    CHECK_FAILS(ah_folder_remove(folder_at("mine"), NULL), AH_ESTATE, "is nested too deeply");
    CHECK(folder_has(name));
    for (; strlen(name) > strlen("mine"); name[strlen(name) - 2] = '\0')
        REQUIRE(rmdir(folder_at(name)) == 0);
    folder_leave();
}

AH_TEST(folder_removal_of_a_file_removes_regular_files_alone)
{
    folder_enter();
    REQUIRE(!symlink("one", folder_at("mine/link")));
    CHECK_FAILS(ah_folder_remove_file(folder_at("mine/link")), AH_ESTATE, "not removed: '");
    CHECK_FAILS(ah_folder_remove_file(folder_at("mine/deep")), AH_ESTATE, "/mine/deep' is a folder");
    CHECK_OK(ah_folder_remove_file(folder_at("mine/one")));
    CHECK_OK(ah_folder_remove_file(folder_at("mine/one")));
    CHECK(!folder_has("mine/one") && folder_has("mine/link") && folder_has("mine/deep/two"));
    folder_leave();
}

/* In a separate process: mount points, one of another file system and one of the same. 0 when all is well. */
static int check_mounts(void)
{
    if (unshare(CLONE_NEWNS | (getuid() ? CLONE_NEWUSER : 0)) || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL))
        return 77;
    if (mount("none", folder_at("mine/deep"), "tmpfs", 0, "size=64k"))
        return 77;
    make_file("mine/deep/other");
    if (ah_folder_remove(folder_at("mine"), NULL) != AH_ESTATE ||
        !strstr(ah_error_text(), "'deep' in it is a mount point"))
        return 1;
    if (ah_folder_remove(folder_at("mine/deep"), NULL) != AH_ESTATE ||
        !strstr(ah_error_text(), "/deep' is a mount point"))
        return 2;
    if (!folder_has("mine/deep/other") || !folder_has("mine/one") || umount(folder_at("mine/deep")))
        return 3;
    if (mount(folder_at("precious"), folder_at("mine/deep"), "none", MS_BIND, NULL))
        return 77;
    if (ah_folder_remove(folder_at("mine"), NULL) != AH_ESTATE ||
        !strstr(ah_error_text(), "'deep' in it is a mount point"))
        return 4;
    return folder_has("mine/one") && folder_has("precious/thesis") ? 0 : 5;
}

AH_TEST(folder_removal_stays_on_its_file_system)
{
    int status = 0;
    folder_enter();
    pid_t child = fork();
    if (child == 0)
        _exit(check_mounts());
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        printf("folder_removal_stays_on_its_file_system: needs the right to mount\n");
    else if (WEXITSTATUS(status))
        test_failed(__FILE__, __LINE__, "the check of mounts ended with %d", WEXITSTATUS(status));
    CHECK(folder_has("precious/thesis"));
    folder_leave();
}
