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

static const char *at(const char *name)
{
    static char path[4][512];
    static int turn;
    char *out = path[turn++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", root, name);
    return out;
}

static bool has(const char *name)
{
    struct stat info;
    return lstat(at(name), &info) == 0;
}

static void make_file(const char *name)
{
    FILE *file = fopen(at(name), "w");
    REQUIRE(file && fclose(file) == 0);
}

/* A folder "mine" with two files below, and one "precious" next to it. */
static void enter(void)
{
    snprintf(root + sizeof root - 7, 7, "XXXXXX");
    REQUIRE(mkdtemp(root));
    REQUIRE(!mkdir(at("mine"), 0777) && !mkdir(at("mine/deep"), 0777) && !mkdir(at("precious"), 0777));
    make_file("mine/one");
    make_file("mine/deep/two");
    make_file("precious/thesis");
}

static void leave(void)
{
    CHECK_OK(ah_folder_remove(root, NULL));
    CHECK(!has(""));
}

AH_TEST(folder_removal_follows_no_link)
{
    enter();
    REQUIRE(!symlink("../precious", at("mine/inside")) && !symlink("../../precious", at("mine/deep/below")));
    REQUIRE(!symlink("../precious/thesis", at("mine/to_a_file")) && !symlink("nowhere", at("mine/dangling")));
    REQUIRE(!symlink("mine", at("link")) && !symlink(".", at("parent")));
    CHECK_FAILS(ah_folder_remove(at("link"), NULL), AH_ESTATE, "/link' is a link");
    CHECK_FAILS(ah_folder_remove(at("link/"), NULL), AH_ESTATE, "/link/' is a link");
    CHECK(has("mine/one") && has("mine/deep/two"));
    CHECK_OK(ah_folder_remove(at("parent/mine"), NULL));
    CHECK(!has("mine") && has("link") && has("precious/thesis"));
    CHECK_OK(ah_folder_remove(at("mine"), NULL));
    leave();
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
    enter();
    CHECK_FAILS(ah_folder_remove(at("mine"), &rule), AH_ESTATE, "/mine': 'deep/two' in it is dear");
    CHECK_FAILS(ah_folder_check(at("mine"), &rule), AH_ESTATE, "/mine': 'deep/two' in it is dear");
    CHECK(asked > 0 && has("mine/one") && has("mine/deep/two"));
    REQUIRE(unlink(at("mine/deep/two")) == 0);
    CHECK_OK(ah_folder_check(at("mine"), &rule));
    CHECK(has("mine/one") && has("mine/deep"));
    CHECK_OK(ah_folder_remove(at("mine"), &rule));
    CHECK(!has("mine"));
    make_file("file");
    CHECK_FAILS(ah_folder_remove(at("file"), NULL), AH_ESTATE, "/file' is no folder");
    CHECK_FAILS(ah_folder_remove("/", NULL), AH_EIO, "not the name of a folder");
    leave();
}

AH_TEST(folder_removal_handles_many_files_and_stops_at_great_depth)
{
    char name[300] = "mine";
    enter();
    for (int i = 0; i < 3000; i++) {
        char file[40];
        snprintf(file, sizeof file, "mine/deep/%d", i);
        make_file(file);
    }
    CHECK_OK(ah_folder_remove(at("mine"), NULL));
    CHECK(!has("mine"));
    REQUIRE(mkdir(at("mine"), 0777) == 0);
    for (int i = 0; i < 70; i++)
        REQUIRE(mkdir(at(strcat(name, "/d")), 0777) == 0);
    CHECK_FAILS(ah_folder_remove(at("mine"), NULL), AH_ESTATE, "is nested too deeply");
    CHECK(has(name));
    for (; strlen(name) > strlen("mine"); name[strlen(name) - 2] = '\0')
        REQUIRE(rmdir(at(name)) == 0);
    leave();
}

AH_TEST(folder_removal_of_a_file_removes_regular_files_alone)
{
    enter();
    REQUIRE(!symlink("one", at("mine/link")));
    CHECK_FAILS(ah_folder_remove_file(at("mine/link")), AH_ESTATE, "not removed: '");
    CHECK_FAILS(ah_folder_remove_file(at("mine/deep")), AH_ESTATE, "/mine/deep' is a folder");
    CHECK_OK(ah_folder_remove_file(at("mine/one")));
    CHECK_OK(ah_folder_remove_file(at("mine/one")));
    CHECK(!has("mine/one") && has("mine/link") && has("mine/deep/two"));
    leave();
}

/* In a separate process: mount points, one of another file system and one of the same. 0 when all is well. */
static int check_mounts(void)
{
    if (unshare(CLONE_NEWNS | (getuid() ? CLONE_NEWUSER : 0)) || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL))
        return 77;
    if (mount("none", at("mine/deep"), "tmpfs", 0, "size=64k"))
        return 77;
    make_file("mine/deep/other");
    if (ah_folder_remove(at("mine"), NULL) != AH_ESTATE || !strstr(ah_error_text(), "'deep' in it is a mount point"))
        return 1;
    if (ah_folder_remove(at("mine/deep"), NULL) != AH_ESTATE || !strstr(ah_error_text(), "/deep' is a mount point"))
        return 2;
    if (!has("mine/deep/other") || !has("mine/one") || umount(at("mine/deep")))
        return 3;
    if (mount(at("precious"), at("mine/deep"), "none", MS_BIND, NULL))
        return 77;
    if (ah_folder_remove(at("mine"), NULL) != AH_ESTATE || !strstr(ah_error_text(), "'deep' in it is a mount point"))
        return 4;
    return has("mine/one") && has("precious/thesis") ? 0 : 5;
}

AH_TEST(folder_removal_stays_on_its_file_system)
{
    int status = 0;
    enter();
    pid_t child = fork();
    if (child == 0)
        _exit(check_mounts());
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        printf("folder_removal_stays_on_its_file_system: needs the right to mount\n");
    else if (WEXITSTATUS(status))
        test_failed(__FILE__, __LINE__, "the check of mounts ended with %d", WEXITSTATUS(status));
    CHECK(has("precious/thesis"));
    leave();
}
