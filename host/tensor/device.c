/* The registry of devices: names to open devices, plugins to types. A name is split at its colon, its type is searched
 * among the open ones, else accelhost-NAME.so is loaded from the program's folder. Types and devices stay open
 * once they are; a device is the same pointer for its whole life, so storages compare devices by address. */
#include "tensor/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process/plugin.h"
#include "base/status/status.h"

enum { MAX_TYPES = 8, MAX_DEVICES = 64, NAME_ROOM = 16 };

static const struct ah_device_type *device_types[MAX_TYPES];
static int current_devices[MAX_TYPES]; /* of each: the index that its bare name means */
static int type_count;
static struct ah_device *all_devices[MAX_DEVICES] = {&ah_cpu};
static int device_count = 1;
/* The seed of generators of devices that are opened later: of one type, else of all. */
static struct seed {
    bool set;
    uint64_t value;
} device_seeds[MAX_TYPES], seed_of_all;

struct ah_device *ah_default_device = &ah_cpu;

/* "cuda:1" to "cuda" and 1; -1 without an index. False when the text is no such name. */
static bool device_split(const char *text, char *name, int *index)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789");
    if (length == 0 || length >= NAME_ROOM)
        return false;
    memcpy(name, text, length);
    name[length] = '\0';
    *index = -1;
    if (!text[length])
        return true;
    const char *digits = text + length + 1;
    if (text[length] != ':' || !digits[0] || strlen(digits) > 4 || strspn(digits, "0123456789") != strlen(digits))
        return false;
    *index = (int)strtol(digits, NULL, 10);
    return true;
}

static const struct ah_device_type *known_type(const char *name)
{
    if (!strcmp(name, ah_cpu.type->name))
        return ah_cpu.type;
    for (int i = 0; i < type_count; i++)
        if (!strcmp(device_types[i]->name, name))
            return device_types[i];
    return NULL;
}

void ah_device_add_type(const struct ah_device_type *type)
{
    if (!known_type(type->name) && type_count < MAX_TYPES)
        device_types[type_count++] = type;
}

bool ah_device_has_values(const struct ah_device *device)
{
    return strcmp(device->type->name, "meta") != 0;
}

static int load_plugin(const char *name, const struct ah_device_type **out)
{
    char path[4096];
    if (!ah_plugin_find(name, path, sizeof path))
        return ah_fail(AH_EINVAL, "device \"%s\": accelhost-%s.so is not here (searched: %s)", name, name, path);
    if (type_count == MAX_TYPES)
        return ah_fail(AH_EINVAL, "device \"%s\": at most %d kinds of devices can be open", name, MAX_TYPES);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ah_fail(AH_EINVAL, "device \"%s\": %s", name, dlerror());
    const struct ah_device_type *type = dlsym(library, "ah_device_plugin");
    int status = 0;
    if (!type)
        status = ah_fail(AH_EINVAL, "device \"%s\": %s is no plugin for devices (no ah_device_plugin)", name, path);
    else if (type->abi != AH_DEVICE_ABI)
        status = ah_fail(AH_EINVAL, "device \"%s\": %s has interface %u, this program %d: rebuild both", name, path,
                         type->abi, AH_DEVICE_ABI);
    else if (strcmp(type->name, name))
        status = ah_fail(AH_EINVAL, "device \"%s\": %s calls itself \"%s\"", name, path, type->name);
    if (status < 0) {
        dlclose(library);
        return status;
    }
    *out = device_types[type_count++] = type;
    return 0;
}

static int find_type(const char *name, const struct ah_device_type **out)
{
    *out = known_type(name);
    return *out ? 0 : load_plugin(name, out);
}

int ah_device_comm_type_of(const char *name, const struct ah_device_comm_type **out)
{
    const struct ah_device_type *type;
    *out = NULL;
    if (!ah_device_is_possible(name))
        return ah_fail(AH_EINVAL, "there is no device of this kind");
    AH_TRY(find_type(name, &type));
    if (type->count() == 0)
        return ah_fail(AH_EINVAL, "%s", type->missing ? type->missing() : "there is no device of this kind");
    *out = type->device_comm;
    return 0;
}

/* The place of a type that was added or loaded; -1 for the CPU. */
static int place_of(const struct ah_device_type *type)
{
    for (int i = 0; i < type_count; i++)
        if (device_types[i] == type)
            return i;
    return -1;
}

bool ah_device_is_possible(const char *name)
{
    /* A library that a type needs, unless a variable names something else in its place: a search for it costs less than
     * opening the plugin that would search for it. */
    static const struct {
        const char *type, *library, *instead;
    } needs[] = {{"cuda", "libcuda.so.1", "ACCELHOST_CUDA"}};
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        const char *instead = getenv(needs[i].instead);
        if (strcmp(name, needs[i].type) || (instead && *instead))
            continue;
        void *library = dlopen(needs[i].library, RTLD_LAZY | RTLD_LOCAL);
        if (library)
            dlclose(library);
        return library != NULL;
    }
    return true;
}

static int open_device(const struct ah_device_type *type, int index, struct ah_device **out)
{
    int count = type->count();
    if (count == 0 && type->missing)
        return ah_fail(AH_EINVAL, "device \"%s:%d\": %s", type->name, index, type->missing());
    if (index >= count)
        return ah_fail(AH_EINVAL, "device \"%s:%d\": there %s %d of this kind", type->name, index,
                       count == 1 ? "is" : "are", count);
    if (device_count == MAX_DEVICES)
        return ah_fail(AH_EINVAL, "device \"%s:%d\": at most %d devices can be open", type->name, index, MAX_DEVICES);
    struct ah_device *device = calloc(1, sizeof *device);
    AH_TRY_MEMORY(device, "out of memory");
    device->type = type;
    device->index = index;
    snprintf(device->name, sizeof device->name, "%s:%d", type->name, index);
    int status = type->open(device);
    if (status == 0 && (!device->table || strcmp(device->table, ah_cpu.table))) {
        status = ah_fail(AH_EINVAL, "device \"%s\": accelhost-%s.so was built with another op table: rebuild both",
                         device->name, type->name);
        type->close(device);
    }
    if (status < 0) {
        free(device);
        return status;
    }
    int place = place_of(type);
    const struct seed *seed = place >= 0 && device_seeds[place].set ? &device_seeds[place] : &seed_of_all;
    if (seed->set)
        type->seed(device, seed->value);
    *out = all_devices[device_count++] = device;
    return 0;
}

int ah_device_find(const char *text, struct ah_device **out)
{
    char name[NAME_ROOM];
    int index;
    const struct ah_device_type *type = NULL;
    if (!device_split(text, name, &index))
        return ah_fail(AH_EINVAL, "device: expected a name such as \"cpu\" or \"cuda:0\", got \"%s\"", text);
    AH_TRY(find_type(name, &type));
    if (index < 0)
        index = place_of(type) < 0 ? 0 : current_devices[place_of(type)];
    for (int i = 0; i < device_count; i++) {
        if (all_devices[i]->type == type && all_devices[i]->index == index) {
            *out = all_devices[i];
            return 0;
        }
    }
    return open_device(type, index, out);
}

bool ah_device_is_name(const char *text)
{
    char name[NAME_ROOM], path[4096];
    int index;
    if (!device_split(text, name, &index))
        return false;
    if (index >= 0 || known_type(name) || !strcmp(name, "cuda"))
        return true;
    return ah_plugin_find(name, path, sizeof path);
}

void ah_device_make_current(struct ah_device *device)
{
    int place = place_of(device->type);
    if (place >= 0)
        current_devices[place] = device->index;
}

int ah_device_current(const char *name)
{
    const struct ah_device_type *type = known_type(name);
    int place = type ? place_of(type) : -1;
    return place < 0 ? 0 : current_devices[place];
}

int ah_device_count(const char *name)
{
    const struct ah_device_type *type = known_type(name);
    if (!type && (!ah_device_is_possible(name) || find_type(name, &type) < 0))
        return 0;
    return type->count();
}

const char *ah_device_missing(const char *name)
{
    const struct ah_device_type *type = NULL;
    if (find_type(name, &type) < 0)
        return ah_error_text();
    return type->count() == 0 && type->missing ? type->missing() : NULL;
}

int ah_device_describe(const char *name, int index, char *text, size_t room)
{
    const struct ah_device_type *type = NULL;
    AH_TRY(find_type(name, &type));
    if (!type->describe)
        return ah_fail(AH_ENOTIMPL, "device \"%s\": it has no description", name);
    return type->describe(index, text, room);
}

bool ah_device_property(const char *name, int index, int i, struct ah_device_property *out)
{
    const struct ah_device_type *type = NULL;
    return find_type(name, &type) == 0 && type->property && type->property(index, i, out);
}

int ah_device_sensors(const char *name, int card, struct ah_device_property *out)
{
    const struct ah_device_type *type = NULL;
    if (!ah_device_is_possible(name) || find_type(name, &type) < 0 || !type->sensors)
        return 0;
    return type->sensors(card, out, AH_DEVICE_SENSORS);
}

int ah_device_report_ranges(const char *name, bool on)
{
    const struct ah_device_type *type = NULL;
    AH_TRY(find_type(name, &type));
    if (!type->report_ranges)
        return ah_fail(AH_ENOTIMPL, "%s: it has no profiler that could show ranges", name);
    return type->report_ranges(on);
}

struct ah_device *ah_device_open_at(int i)
{
    return i < device_count ? all_devices[i] : NULL;
}

void ah_device_close_all(void)
{
    ah_default_device = &ah_cpu;
    while (device_count > 1) {
        struct ah_device *device = all_devices[--device_count];
        device->type->close(device);
        free(device);
    }
}

void ah_device_seed_all(uint64_t seed)
{
    seed_of_all = (struct seed){true, seed};
    memset(device_seeds, 0, sizeof device_seeds);
    for (int i = 0; i < device_count; i++)
        all_devices[i]->type->seed(all_devices[i], seed);
}

void ah_device_seed_type(const char *name, uint64_t seed)
{
    const struct ah_device_type *type = NULL;
    if (ah_device_count(name) == 0 || find_type(name, &type) < 0)
        return;
    if (place_of(type) >= 0)
        device_seeds[place_of(type)] = (struct seed){true, seed};
    for (int i = 0; i < device_count; i++)
        if (all_devices[i]->type == type)
            type->seed(all_devices[i], seed);
}

int ah_device_allocate(struct ah_device *device, size_t bytes, void **out)
{
    int status = device->type->allocate(device, bytes, out);
    if (status == AH_ENOMEM && !device->type->collects && ah_block_relieve())
        status = device->type->allocate(device, bytes, out);
    return status;
}

/* Types know their own memory and the CPU's, not each other's. */
static int copy_by_cpu(void *to, struct ah_device *to_device, const void *from, struct ah_device *from_device,
                       size_t bytes)
{
    void *block;
    AH_TRY(ah_block_alloc(bytes, &block));
    int status = from_device->type->copy(from_device, block, &ah_cpu, from, from_device, bytes, NULL);
    if (status == 0)
        status = to_device->type->copy(to_device, to, to_device, block, &ah_cpu, bytes, NULL);
    ah_block_free(block, bytes);
    return status;
}

int ah_device_copy(void *to, struct ah_device *to_device, const void *from, struct ah_device *from_device, size_t bytes)
{
    if (to_device != &ah_cpu && from_device != &ah_cpu && to_device->type != from_device->type)
        return copy_by_cpu(to, to_device, from, from_device, bytes);
    struct ah_device *doer = to_device == &ah_cpu ? from_device : to_device;
    return doer->type->copy(doer, to, to_device, from, from_device, bytes, NULL);
}
