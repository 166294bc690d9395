/* Kinds of file systems. */
#include "base/io/file_system.h"
#include "test.h"

AH_TEST(network_file_systems_and_fuse_are_shared_between_hosts)
{
    static const unsigned long shared[] = {0x6969, 0x65735546, 0x0bd00bd0, 0xff534d42, 0xffffffffff534d42u};
    static const unsigned long local[] = {0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x794c7630, 0};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        CHECK(ah_file_system_is_shared(shared[i]));
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        CHECK(!ah_file_system_is_shared(local[i]));
    CHECK(!ah_path_is_shared("/proc"));
    CHECK(!ah_path_is_shared("/no such folder"));
}
