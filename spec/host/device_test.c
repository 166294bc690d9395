/* The registry of devices, copies between them, and storages on memory of another owner. "far" is the plugin of
 * spec/device. */
#include "cpu/device.h"
#include "tensor/tensor.h"
#include "test.h"

AH_TEST(devices_are_found_by_name)
{
    struct ah_device *cpu, *first, *second, *again;
    ah_cpu_open();
    CHECK_OK(ah_device_find("cpu", &cpu));
    CHECK(cpu == &ah_cpu);
    CHECK_OK(ah_device_find("far", &first));
    CHECK_OK(ah_device_find("far:1", &second));
    CHECK_OK(ah_device_find("far:0", &again));
    CHECK(first == again && first != second);
    CHECK(!strcmp(first->name, "far:0") && !strcmp(second->name, "far:1"));
    CHECK(ah_device_open_at(0) == &ah_cpu && ah_device_open_at(1) == first && ah_device_open_at(2) == second);
    CHECK(!ah_device_open_at(3));
    CHECK(ah_device_count("far") == 2 && ah_device_count("none") == 0);
    CHECK(ah_device_is_name("far") && ah_device_is_name("none:3") && !ah_device_is_name("none"));
    CHECK_FAILS(ah_device_find("far:2", &again), AH_EINVAL, "there are 2 of this kind");
    CHECK_FAILS(ah_device_find("none", &again), AH_EINVAL, "accelhost-none.so is not here");
    static const char *const wrong[] = {"", ":1", "far:", "far:-1", "far:1x", "Far", "../far", "far:99999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_FAILS(ah_device_find(wrong[i], &again), AH_EINVAL, "expected a name such as");
}

AH_TEST(devices_copy_in_every_direction)
{
    struct ah_device *far[2];
    void *block[2];
    const char sent[] = "sixteen letters";
    char got[sizeof sent] = "";
    ah_cpu_open();
    REQUIRE(ah_device_find("far:0", &far[0]) == 0 && ah_device_find("far:1", &far[1]) == 0);
    for (int i = 0; i < 2; i++)
        REQUIRE(ah_device_allocate(far[i], sizeof sent, &block[i]) == 0);
    CHECK_OK(ah_device_copy(block[0], far[0], sent, &ah_cpu, sizeof sent));
    CHECK_OK(ah_device_copy(block[1], far[1], block[0], far[0], sizeof sent));
    CHECK_OK(ah_device_copy(got, &ah_cpu, block[1], far[1], sizeof sent));
    CHECK(!strcmp(got, sent));
    CHECK_FAILS(ah_device_copy(block[0], far[1], sent, &ah_cpu, sizeof sent), AH_ESTATE, "is not memory of this");
    for (int i = 0; i < 2; i++)
        far[i]->type->release(far[i], block[i], sizeof sent);
}

AH_TEST(tensors_are_made_on_devices)
{
    struct ah_device *far;
    struct ah_tensor *zeros, *number;
    float got[6] = {1, 1, 1, 1, 1, 1};
    ah_cpu_open();
    REQUIRE(ah_device_find("far", &far) == 0);
    REQUIRE(ah_tensor_zeros(&zeros, (int64_t[]){2, 3}, 2, AH_F32, far) == 0);
    REQUIRE(ah_tensor_scalar(&number, 2.5, AH_F32, far) == 0);
    CHECK(zeros->storage->device == far && number->storage->device == far && !ah_on_cpu(zeros));
    CHECK_OK(ah_device_copy(got, &ah_cpu, ah_tensor_data(zeros), far, sizeof got));
    for (int i = 0; i < 6; i++)
        CHECK(got[i] == 0);
    CHECK_OK(ah_device_copy(got, &ah_cpu, ah_tensor_data(number), far, sizeof *got));
    CHECK(got[0] == 2.5f);
    ah_tensor_release(zeros);
    ah_tensor_release(number);
}

static int released;

static void device_release(struct ah_storage *storage)
{
    released++;
}

/* Rows become columns where the memory is: in a fresh block of the device's own, in place in that of another owner. */
static void check_row_major(enum ah_dtype dtype)
{
    static const int64_t size[] = {1, 2, 2, 2};
    double lent[8] = {0};
    struct ah_tensor *tensor;
    REQUIRE(ah_tensor_from_memory(&tensor, lent, size, 4, dtype, &ah_cpu, device_release, NULL) == 0);
    for (int i = 0; i < 8; i++)
        ah_tensor_set(tensor, i, i);
    tensor->storage->channels_last = true; /* (n, h, w, c) = 0, 1, 2, ... */
    CHECK_OK(ah_tensor_row_major(tensor));
    CHECK(!tensor->storage->channels_last && tensor->storage->data == lent);
    for (int c = 0; c < 2; c++)
        for (int at = 0; at < 4; at++)
            CHECK(ah_tensor_get(tensor, c * 4 + at) == at * 2 + c);
    ah_tensor_release(tensor);
}

AH_TEST(lent_memory_stays_in_its_place)
{
    released = 0;
    check_row_major(AH_F32);
    check_row_major(AH_F64);
    check_row_major(AH_U8);
    CHECK(released == 3);
}
