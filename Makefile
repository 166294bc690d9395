# accelhost. `make help` lists the targets. BUILD=dir builds elsewhere; DEBUG=1 without optimisation; ARCH= to target
# another processor, ARCH=portable for all of the architecture (in a separate directory); TARGET=aarch64-linux-gnu to
# compile for another architecture, with libraries below SYSROOT (in its own directory); SAN=address|undefined|thread
# for a sanitizer build (in its own directory); V=1 shows the commands; -jN instead of one job per processor.
.DEFAULT_GOAL := all
MAKEFLAGS += --no-builtin-rules
# In the environment as well, since GNU make before 4.4 hides -j from MAKEFLAGS until the Makefile is read.
JOBS := $(if $(filter -j% --jobserver%,$(MAKEFLAGS) $(shell echo "$$MAKEFLAGS")),,-j$(shell nproc))
MAKEFLAGS += $(JOBS)

$(if $(filter Linux,$(shell uname -s)),,$(error accelhost runs on Linux only))

comma   := ,
# TARGET=tuple: the GNU tools of that name; SYSROOT=folder: the root of a system of that architecture (none: the
# libraries are installed here, for both architectures); EMULATOR=command: runs the target's programs during the build.
TARGET  ?=
SYSROOT ?=
QEMU    := qemu-$(firstword $(subst -, ,$(TARGET)))
EMULATOR ?= $(if $(TARGET),$(shell command -v $(QEMU) || command -v $(QEMU)-static) $(SYSROOT:%=-L %))
ifneq ($(TARGET),)
# Values of the command line (CC="ccache ...") have precedence over these.
CC      := $(TARGET)-gcc
CXX     := $(TARGET)-g++
LD      := $(TARGET)-ld
NM      := $(TARGET)-nm
OBJCOPY := $(TARGET)-objcopy
ARCH    ?= $(if $(filter aarch64-%,$(TARGET)),armv8-a,$(error TARGET=$(TARGET) requires ARCH, a value of -march))
PKG_CONFIG := PKG_CONFIG_SYSROOT_DIR=$(SYSROOT) \
              PKG_CONFIG_LIBDIR=$(SYSROOT)/usr/lib/$(TARGET)/pkgconfig:$(SYSROOT)/usr/share/pkgconfig pkg-config
endif
CC      ?= gcc
NM      ?= nm
OBJCOPY ?= objcopy
PKG_CONFIG ?= pkg-config
ifneq ($(SYSROOT),)
override CC  += --sysroot=$(SYSROOT)
override CXX += --sysroot=$(SYSROOT)
endif
SAN     ?=
# FAIL_ALLOC=1: a build whose requests for memory fail on demand (spec/faults/fail_alloc.h).
FAIL_ALLOC ?=
ARCH    ?= native
MACHINE  := $(firstword $(subst -, ,$(or $(TARGET),$(shell $(CC) -dumpmachine))))
$(if $(filter x86_64 aarch64,$(MACHINE)),,$(error accelhost supports x86_64 and aarch64, not $(MACHINE)))
# The levels of x86-64 that the hot files are built for (host/base/numeric/level.h); none: once, for ARCH.
LEVELS  := $(if $(filter portable,$(ARCH)),$(if $(filter x86_64,$(MACHINE)),v2 v3 v4))
MARCH   := $(if $(LEVELS),x86-64-v2,$(ARCH:portable=armv8-a))
BUILD   ?= build$(if $(TARGET),-$(firstword $(subst -, ,$(TARGET))))$(addprefix -,$(filter portable,$(ARCH)))$(if \
           $(SAN),-$(SAN))$(if $(FAIL_ALLOC),-fail-alloc)
OPT     := $(if $(DEBUG),-O0 -g3,-O3 -g1)
OPT_WARM := $(if $(DEBUG),$(OPT),-O2 -g1)
OPT_COLD := $(if $(DEBUG),$(OPT),-Og -g1)

# Goals that are more than files to build, as in `make clean all`, start in order, each in a separate make.
ifneq ($(and $(filter-out all program plugins sim $(BUILD)/%,$(MAKECMDGOALS)),$(word 2,$(MAKECMDGOALS))),)
.NOTPARALLEL:
.PHONY: $(MAKECMDGOALS)
$(MAKECMDGOALS):
	@$(MAKE) --no-print-directory $@
else

PKGS    := luajit yaml-0.1 jansson zlib
# The openmp build of OpenBLAS, since the others have a separate thread pool: Debian's by path with an rpath, Fedora's
# by its name; elsewhere there is one build.
USR        := $(SYSROOT)/usr
# The folder of this architecture where a system has several.
MULTIARCH  := $(or $(TARGET),$(shell $(CC) -print-multiarch 2>/dev/null),*)
BLAS_DIR   := $(firstword $(wildcard $(USR)/lib/$(MULTIARCH)/openblas-openmp))
BLAS_INCLUDE := $(firstword $(wildcard $(USR)/include/$(MULTIARCH)/openblas-openmp $(USR)/include/openblas))
BLAS_LIB   := $(if $(wildcard $(USR)/lib*/libopenblaso.so),openblaso,openblas)
HAVE_ONEDNN := $(if $(wildcard $(USR)/include/dnnl.h $(USR)/include/$(MULTIARCH)/dnnl.h),yes)
MISSING := $(shell for p in $(PKGS); do $(PKG_CONFIG) --exists $$p 2>/dev/null || echo $$p; done) \
           $(if $(wildcard $(patsubst %,%/cblas.h,$(BLAS_INCLUDE) $(USR)/include $(USR)/include/$(MULTIARCH))),,\
           openblas)

# LuaJIT's archive; empty where there is the shared library only.
LUAJIT_A := $(wildcard $(SYSROOT)$(patsubst $(SYSROOT)%,%,$(shell $(PKG_CONFIG) --variable=libdir luajit \
            2>/dev/null))/libluajit-5.1.a)
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings \
           -Wno-unused-parameter -Wno-unknown-pragmas -Wno-pass-failed -Wno-psabi
# -Wno-pass-failed: clang has no vector forms of libm's functions, and warns at each loop that could use them.
# -Wno-psabi: vectors wider than the processor's stay within a file.
# -Wno-alloc-size-larger-than: GCC 11 and before assume that a count of type int is negative.
# -Wno-format-overflow: a sanitizer's own null checks make GCC see null strings.
# -ffp-contract=off: results must not depend on where the compiler finds a multiply-add; kernels ask for it by fma().
CFLAGS  += -std=c11 $(OPT) -march=$(MARCH) -ffp-contract=off -fno-math-errno \
           -fno-trapping-math -fopenmp -fasynchronous-unwind-tables -fno-omit-frame-pointer $(WARN) \
           -Wno-alloc-size-larger-than -Wno-unknown-warning-option $(if $(WERROR),-Werror) \
           $(if $(SAN),-fsanitize=$(SAN) -Wno-format-overflow)
# Expanded once: a recursive variable would start pkg-config for each object.
CPPFLAGS := $(CPPFLAGS) -D_GNU_SOURCE -Ihost -Ispec -Ispec/host -I$(BUILD) \
            $(if $(FAIL_ALLOC),-include faults/fail_alloc.h) \
            $(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null) $(BLAS_INCLUDE:%=-I%) -MMD -MP
# RPATH=folders: searched first for the program's libraries and their dependencies; for a program packaged with them.
RPATH ?=
LDFLAGS += $(if $(RPATH),-Wl$(comma)--disable-new-dtags$(comma)-rpath$(comma)'$(RPATH)')
LDFLAGS += -rdynamic -fopenmp -Wl,--as-needed $(if $(SAN),-fsanitize=$(SAN)) \
           $(if $(BLAS_DIR),-L$(BLAS_DIR) -Wl$(comma)-rpath$(comma)$(patsubst $(SYSROOT)%,%,$(BLAS_DIR)))
# LuaJIT with a source of randomness (host/bind/lua/lua_seed.c) and places for its code (lua_code.c) of ours.
LUAJIT   := $(if $(LUAJIT_A),$(BUILD)/libluajit.a)
LUAJIT_LIBS := $(if $(LUAJIT_A),,$(shell $(PKG_CONFIG) --libs luajit 2>/dev/null))
LDLIBS  := $(LUAJIT_LIBS) -ljansson -lyaml -lz -lm -ldl -lpthread
# Loaded by their first call (host/base/process/lazy_library.h), not linked.
LAZY_LIBS := -l$(BLAS_LIB) $(if $(HAVE_ONEDNN),-ldnnl)

# The interface of oneDNN is cpu/loop/onednn.h; the stub is compiled where the library is missing.
ONEDNN_STUB := host/cpu/loop/onednn_stub.c
ONEDNN_OFF := $(if $(HAVE_ONEDNN),$(ONEDNN_STUB),$(filter-out $(ONEDNN_STUB),$(wildcard host/cpu/*/onednn*.c)))
SEED_OFF := $(if $(LUAJIT_A),host/bind/lua/lua_seed_shared.c,host/bind/lua/lua_code.c)
# Files NAME_MACHINE.c of other architectures.
MACHINE_OFF := $(filter-out %_$(MACHINE).c,$(foreach m,x86_64 aarch64,$(wildcard host/*/*_$(m).c host/*/*/*_$(m).c)))
LEVEL_OFF := host/base/numeric/level_$(if $(LEVELS),native,portable).c
SRC  := $(filter-out $(ONEDNN_OFF) $(SEED_OFF) $(LEVEL_OFF) $(MACHINE_OFF) host/cuda/% host/image/% host/plot/% \
        host/edit/% host/store/% host/regex/% host/mpi/% host/jupyter/%, \
        $(sort $(wildcard host/*.c host/*/*.c host/*/*/*.c))) \
        $(if $(FAIL_ALLOC),spec/faults/fail_alloc.c)
LOOPS := $(filter host/cpu/% host/data/% host/base/numeric/half.c host/comm/control/combine.c host/tensor/rng.c \
        host/tensor/transpose.c,$(SRC))
HOT  := $(if $(LEVELS),$(LOOPS))
OBJ  := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(HOT),$(SRC))) $(BUILD)/embedded.o \
        $(LEVELS:%=$(BUILD)/hot.%.o) $(if $(LEVELS),$(BUILD)/levels.o)
# The kernel of notebooks is embedded in its plugin.
JUPYTER_LUA := $(sort $(wildcard lua/accelhost/jupyter/*.lua))
LUA  := $(filter-out $(JUPYTER_LUA),$(sort $(shell find lua -name '*.lua')))
PAGE := $(sort $(shell find lua -name '*.css' -o -name '*.js' -o -name '*.html'))
TEST_SRC := $(sort $(wildcard spec/host/*.c))
TEST_OBJ := $(TEST_SRC:%.c=$(BUILD)/%.o)
# Code without a measurable part of a step: -Og compiles it in half of the time of -O3, into 0.8 of the code.
COLD := $(wildcard $(addprefix host/,$(addsuffix /*.c,autograd/formulas base/io bind/comm bind/data bind/format \
        bind/train cli cli/* comm/group comm/join comm/net comm/recover comm/store config cuda/driver/* cuda/nccl \
        cuda/ops/* cuda/vendor io meta ops/nn text/load)))
# Code without loops over elements or characters: -O2 compiles it in 0.8 of the time of -O3, into 0.8 of the code.
WARM := $(filter-out $(LOOPS) $(COLD) $(wildcard host/text/*.c),$(SRC))
$(WARM:%.c=$(BUILD)/%.o): OPT = $(OPT_WARM)
$(COLD:%.c=$(BUILD)/%.o) $(TEST_OBJ): OPT = $(OPT_COLD)

# In front of a step's command: one short line instead of it.
say = $(if $(V),,@echo "$(1)" && )
# In front of a compiler: store its warnings in OUTPUT.warnings, for `make check`.
keep = scripts/warnings.sh $@.warnings

# Image files are read by a plugin, which is built where its libraries are.
IMAGE_LIBS := $(shell $(PKG_CONFIG) --exists libpng libjpeg 2>/dev/null && $(PKG_CONFIG) --libs libpng libjpeg)
IMAGE := $(if $(IMAGE_LIBS),$(BUILD)/accelhost-image.so)
# So are PNG files of plots drawn.
CAIRO_LIBS := $(shell $(PKG_CONFIG) --exists cairo 2>/dev/null && $(PKG_CONFIG) --libs cairo)
PLOT := $(if $(CAIRO_LIBS),$(BUILD)/accelhost-plot.so)
# Studies of sweeps are kept in SQLite's files.
SQLITE_LIBS := $(shell $(PKG_CONFIG) --exists sqlite3 2>/dev/null && $(PKG_CONFIG) --libs sqlite3)
STORE := $(if $(SQLITE_LIBS),$(BUILD)/accelhost-sqlite.so)
# Regular expressions of tokenizers that host/text does not match itself are matched by PCRE2.
PCRE2_LIBS := $(shell $(PKG_CONFIG) --exists libpcre2-32 2>/dev/null && $(PKG_CONFIG) --libs libpcre2-32)
REGEX := $(if $(PCRE2_LIBS),$(BUILD)/accelhost-regex.so)
# And lines at the prompt are edited.
EDIT_LIBS := $(shell $(PKG_CONFIG) --exists libedit 2>/dev/null && $(PKG_CONFIG) --libs libedit)
EDIT := $(if $(EDIT_LIBS),$(BUILD)/accelhost-edit.so)
# Notebooks reach their kernel by ZeroMQ.
ZMQ_LIBS := $(shell $(PKG_CONFIG) --exists libzmq 2>/dev/null && $(PKG_CONFIG) --libs libzmq)
JUPYTER := $(if $(ZMQ_LIBS),$(BUILD)/accelhost-jupyter.so)
# Hosts may exchange by MPI, where its compiler wrapper prints the linker flags (Open MPI's, MPICH's).
MPICC ?= mpicc
MPI_FLAGS := $(shell $(MPICC) -show 2>/dev/null | cut -d ' ' -f 2-)
MPI := $(if $(MPI_FLAGS),$(BUILD)/accelhost-mpi.so)

# The plugin of the device cuda needs nothing of NVIDIA's, except for its kernels, which nvcc compiles for each of
# CUDA_ARCHS and, as PTX, for cards after the last of them, with NVCCFLAGS as further options. Where neither NVCC nor
# CUDA_ARCHS is set, a build for this machine has the kernels for its own cards, and none where there is no NVIDIA
# driver. NVCC= leaves them out; CUDA_ARCHS="80 90" and ARCH=portable compile them on any machine. NVRTC=folder compiles
# them with CUDA 12's compiler as a library instead, which `make cuda` installs there.
CUDA := $(BUILD)/accelhost-cuda.so
NVRTC ?=
NVCCFLAGS ?=
CUDA_ALL := 80 90
CUDA_AUTO := $(if $(NVRTC)$(filter portable,$(ARCH))$(filter-out undefined,$(origin NVCC) $(origin CUDA_ARCHS)),,yes)
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
ifdef CUDA_AUTO
CUDA_ARCHS := $(shell scripts/cuda/archs.sh "$(NVCC)" "$(CUDA_ALL)")
else
CUDA_ARCHS ?= $(if $(NVRTC),80 86 89 90 100 120,$(CUDA_ALL))
endif
CUDA_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard host/cuda/*.c host/cuda/*/*.c host/cuda/*/*/*.c)))
CUDA_SOURCES := $(sort $(wildcard host/cuda/kernels/*/*.cu))
CUDA_FOLDER := $(BUILD)/$(if $(NVRTC),nvrtc/)host/cuda
CUDA_IMAGES := $(if $(CUDA_ARCHS),$(if $(NVRTC)$(NVCC),$(CUDA_SOURCES:host/cuda/%.cu=$(CUDA_FOLDER)/%.fatbin)))
# The last of them also as PTX.
CUDA_TARGETS := $(foreach a,$(CUDA_ARCHS),-gencode \
	arch=compute_$(a)$(comma)code=[sm_$(a)$(if $(filter $(a),$(lastword $(CUDA_ARCHS))),$(comma)compute_$(a))])

.PHONY: all
all: program $(CUDA) ##+ build ./accelhost (plain make)

# Everything but the device cuda.
.PHONY: program
program: $(BUILD)/accelhost $(IMAGE) $(PLOT) $(STORE) $(REGEX) $(EDIT) $(JUPYTER) $(MPI)
	@ln -sf $(BUILD)/accelhost accelhost.tmp && mv -f accelhost.tmp accelhost

.PHONY: plugins
plugins: $(IMAGE) $(PLOT) $(STORE) $(REGEX) $(EDIT) $(JUPYTER) $(MPI) $(CUDA)

$(BUILD)/libluajit.a: $(LUAJIT_A) host/bind/lua/lua_code.h
	@mkdir -p $(@D)
	$(call say,objcopy $@)$(OBJCOPY) --redefine-sym syscall=ah_lua_syscall --redefine-sym munmap=ah_lua_munmap \
		--redefine-sym mmap=ah_lua_mmap --redefine-sym mmap64=ah_lua_mmap64 \
		--redefine-sym mremap=ah_lua_mremap $< $@

$(BUILD)/accelhost: $(OBJ) $(LUAJIT)
	$(call say,ld $@)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/selftest: $(filter-out $(BUILD)/host/main.o,$(OBJ)) $(TEST_OBJ) $(LUAJIT)
	$(call say,ld $@)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/accelhost-image.so: $(wildcard host/image/*.[ch]) host/data/image.h | deps-check
	$(call say,plugin $@)$(keep) $(CC) $(filter-out -MMD -MP,$(CPPFLAGS)) $(CFLAGS) \
		$(shell $(PKG_CONFIG) --cflags libpng libjpeg) -fPIC -shared -o $@ $(filter %.c,$^) $(IMAGE_LIBS)

$(BUILD)/accelhost-plot.so: host/plot/plugin.c host/data/scene.h | deps-check
	$(call say,plugin $@)$(keep) $(CC) $(filter-out -MMD -MP,$(CPPFLAGS)) $(CFLAGS) $(shell $(PKG_CONFIG) --cflags cairo) \
		-fPIC -shared -o $@ $< $(CAIRO_LIBS)

$(BUILD)/accelhost-edit.so: $(wildcard host/edit/*.[ch]) host/base/process/editor.h | deps-check
	$(call say,plugin $@)$(keep) $(CC) $(filter-out -MMD -MP,$(CPPFLAGS)) $(CFLAGS) \
		$(shell $(PKG_CONFIG) --cflags libedit) -fPIC -shared -o $@ $(filter %.c,$^) $(EDIT_LIBS)

$(BUILD)/jupyter_lua.c: $(JUPYTER_LUA) $(BUILD)/embed
	$(call say,embed jupyter)$(EMULATOR) $(BUILD)/embed $@ $(BUILD)/jupyter_lua.bin $(JUPYTER_LUA)

# -Bsymbolic: the table of modules has the name of the program's.
$(BUILD)/accelhost-jupyter.so: $(wildcard host/jupyter/*.[ch]) $(BUILD)/jupyter_lua.c \
		host/base/process/jupyter.h | deps-check
	$(call say,plugin $@)$(keep) $(CC) $(filter-out -MMD -MP,$(CPPFLAGS)) $(CFLAGS) \
		$(shell $(PKG_CONFIG) --cflags libzmq) -fPIC -shared -Wl$(comma)-Bsymbolic -o $@ $(filter %.c,$^) $(ZMQ_LIBS)

$(BUILD)/accelhost-sqlite.so: host/store/plugin.c host/io/database.h | deps-check
	$(call say,plugin $@)$(keep) $(CC) $(filter-out -MMD -MP,$(CPPFLAGS)) $(CFLAGS) -fPIC -shared -o $@ $< $(SQLITE_LIBS)

$(BUILD)/accelhost-regex.so: host/regex/plugin.c host/text/regex.h host/text/chars.h | deps-check
	@mkdir -p $(@D)
	$(call say,plugin $@)$(keep) $(CC) $(filter-out -MMD -MP,$(CPPFLAGS)) $(CFLAGS) -fPIC -shared -o $@ $< $(PCRE2_LIBS)

$(BUILD)/accelhost-mpi.so: $(wildcard host/mpi/*.[ch]) host/comm/net/mpi.h host/comm/net/transport.h \
		host/comm/control/hosts.h | deps-check
	@mkdir -p $(@D)
	$(if $(MPI_FLAGS),,@echo "$(@F) needs an MPI: libopenmpi-dev (scripts/install-deps.sh mpi)" >&2; exit 1)
	$(call say,plugin $@)$(keep) $(CC) $(filter-out -MMD -MP,$(CPPFLAGS)) $(CFLAGS) -fPIC -shared -o $@ $(filter %.c,$^) \
		$(MPI_FLAGS)

$(CUDA_OBJ): CFLAGS += -fPIC
$(CUDA): $(CUDA_OBJ) $(CUDA_FOLDER)/images.o
	$(call say,plugin $@)$(CC) $(CFLAGS) -shared -o $@ $^ -ldl -lpthread -lrt

$(CUDA_FOLDER)/images.o: $(CUDA_IMAGES) scripts/cuda/images.sh
	@mkdir -p $(@D)
	@scripts/cuda/images.sh "$(CUDA_ARCHS:%=sm_%)" "$(CUDA_VERSION)" "$(CUDA_DRIVER)" $(CUDA_IMAGES) > $(@:.o=.S)
	$(call say,as $@)$(CC) -c -o $@ $(@:.o=.S)

# Written when CUDA_ARCHS changes: the kernels are compiled again then.
$(CUDA_IMAGES): $(CUDA_FOLDER)/archs
$(CUDA_FOLDER)/archs: force
	@mkdir -p $(@D)
	@echo "$(CUDA_ARCHS)" | cmp -s - $@ || echo "$(CUDA_ARCHS)" > $@

.PHONY: force
force:

# The version of CUDA that compiles the kernels, and the oldest driver that loads them: code by CUDA 13 needs a driver
# for CUDA 13, and drivers before that for 12.4 do not read code that is compressed for size.
CUDA_VERSION = $(if $(CUDA_IMAGES),$(if $(NVRTC),12.9,$(NVCC_VERSION)))
CUDA_DRIVER = $(if $(filter 12.%,$(CUDA_VERSION)),$(if $(NVRTC)$(NVCC_SMALL),12.4,12.0),$(basename $(CUDA_VERSION)).0)

.PHONY: cuda
cuda: ## the plugin with kernels for every card, by CUDA 12's compiler from PyPI: drivers from 550 on load them
	@scripts/cuda/wheels.sh build-nvrtc
	@$(MAKE) --no-print-directory NVCC= $(CUDA)
	@rm -f $(CUDA)
	@$(MAKE) --no-print-directory NVRTC=build-nvrtc $(CUDA)

$(BUILD)/nvrtc/compile: scripts/cuda/nvrtc.c
	@mkdir -p $(@D)
	$(call say,ld $@)$(CC) -D_GNU_SOURCE -std=c11 -O1 $(WARN) -o $@ $< -ldl

$(BUILD)/nvrtc/host/cuda/kernels/%.fatbin: host/cuda/kernels/%.cu $(BUILD)/nvrtc/compile \
		$(wildcard host/cuda/kernels/*/*.h host/cuda/kernels/*/*.cuh) host/base/numeric/dtype.h \
		host/base/numeric/special_series.h host/optim/scalars.h
	@mkdir -p $(@D)
	$(call say,nvrtc $<)LD_LIBRARY_PATH=$(NVRTC)/nvidia/cuda_nvrtc/lib:$(NVRTC)/nvidia/nvfatbin/lib \
		$(BUILD)/nvrtc/compile $@ $< "$(CUDA_ARCHS)" -std=c++17 -fmad=false --diag-suppress=186,20044 -default-device \
		-Ihost -I$(NVRTC)/nvidia/cuda_runtime/include

# A section of the object is the image, so that a compiler's cache, which knows -c, works here too. Sums of products
# are computed as written (CFLAGS): no multiply-add unless the source has one. Warning 186: templates compare unsigned
# types with 0; NVRTC's 20044: headers declare the program's variables. The smallest compression makes the plugin a
# quarter as large; compilers before 12.8 have one kind only.
NVCC_SMALL = $(if $(shell $(NVCC) --help | grep compress-mode),-compress-mode size)
NVCC_VERSION = $(shell $(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
$(BUILD)/host/cuda/kernels/%.fatbin: host/cuda/kernels/%.cu
	@mkdir -p $(@D)
	$(call say,nvcc $<)$(keep) $(filter ccache,$(CC)) $(NVCC) -std=c++17 -O3 -fmad=false \
		$(if $(WERROR),-Werror all-warnings) \
		-diag-suppress 186 $(NVCC_SMALL) $(NVCCFLAGS) -Ihost $(CUDA_TARGETS) -MMD -MP -MF $(@:.fatbin=.nv.d) -MT $@ \
		-c -o $(@:.fatbin=.nv.o) $<
	@$(OBJCOPY) -O binary --only-section=.nv_fatbin --set-section-flags .nv_fatbin=alloc $(@:.fatbin=.nv.o) $@

# The hot files of one level as one object, of which nothing is seen but its functions, f as f.v3.
define hot_rules
$(BUILD)/$(1)/%.o: %.c | deps-check $(BUILD)/op_args.h $(BUILD)/libraries.h
	$$(call say,cc $(1) $$<)$$(keep) $$(CC) $$(CPPFLAGS) $$(CFLAGS) -march=x86-64-$(1) -c -o $$@ $$<
$(BUILD)/hot.$(1).o: $(HOT:%.c=$(BUILD)/$(1)/%.o) $(BUILD)/levels.names
	$$(call say,ld $$@)$$(LD) -r -o $$@.all $$(filter %.o,$$^)
	@sed 's/.*/& &.$(1)/' $(BUILD)/levels.names > $$@.names
	@$(OBJCOPY) --keep-global-symbols=$(BUILD)/levels.names $$@.all
	@$(OBJCOPY) --redefine-syms=$$@.names $$@.all $$@ && rm $$@.all $$@.names
-include $(HOT:%.c=$(BUILD)/$(1)/%.d)
endef
$(foreach level,$(LEVELS),$(eval $(call hot_rules,$(level))))

$(BUILD)/levels.names: $(HOT:%.c=$(BUILD)/$(firstword $(LEVELS))/%.o)
	@$(NM) -g --defined-only $^ | awk '$$2 == "T" { print $$3 }' | LC_ALL=C sort > $@.new && mv -f $@.new $@

$(BUILD)/levels.o: $(BUILD)/levels.names scripts/levels.sh
	@scripts/levels.sh "$(LEVELS)" < $< > $(@:.o=.S)
	$(call say,as $@)$(CC) -c -o $@ $(@:.o=.S)

# The devices of the specs are plugins, found in the folder of the program that opens them.
PLUGINS := $(BUILD)/accelhost-far.so $(BUILD)/accelhost-old.so
$(BUILD)/accelhost-far.so: spec/device/far_device.c
$(BUILD)/accelhost-old.so: spec/device/old_plugin.c
$(PLUGINS): | deps-check $(BUILD)/op_args.h
	$(call say,plugin $@)$(keep) $(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -MF $(@:.so=.d) -o $@ $<
$(BUILD)/selftest: | $(PLUGINS) $(BUILD)/plugin-headers $(BUILD)/without_calls $(BUILD)/large_pages.so

# Blocks system calls of programs that specs run.
$(BUILD)/without_calls: spec/support/without_calls.c
	@mkdir -p $(@D)
	$(call say,cc $@)$(keep) $(CC) -D_GNU_SOURCE -std=c11 -O1 $(WARN) -o $@ $<

# Memory calls of programs that specs run, as where pages are larger.
$(BUILD)/large_pages.so: spec/support/large_pages.c
	@mkdir -p $(@D)
	$(call say,cc $@)$(keep) $(CC) -D_GNU_SOURCE -std=c11 -O1 $(WARN) -fPIC -shared -o $@ $< -ldl

# The simulated GPU: the kernels of host/cuda compiled for the host, and substitutes for NVIDIA's libraries. Its own
# tests also run kernels with planted errors.
SIM_SRC := $(sort $(wildcard spec/sim/*.cc host/cuda/kernels/*/*.cu))
SIM_TEST_SRC := $(sort $(wildcard spec/sim/test/*.cc spec/sim/test/*.cu spec/sim/planted/*.cu))
SIM_OBJ := $(SIM_SRC:%=$(BUILD)/sim/%.o)
SIM_TEST_OBJ := $(SIM_TEST_SRC:%=$(BUILD)/sim/%.o)
SIM_FLAGS := -std=c++17 $(if $(DEBUG),-O0 -g3,$(if $(SAN),-O1,-O2) -g1) -march=$(MARCH) \
	-ffp-contract=off -fno-math-errno -fno-omit-frame-pointer -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti \
	-Wall -Wextra -Wshadow \
	-Wno-unused-parameter $(if $(WERROR),-Werror) $(if $(SAN),-fsanitize=$(SAN))
# Without a C++ compiler its spec reports that.
SIM := $(if $(shell command -v $(CXX)),sim)
.PHONY: sim
sim: $(BUILD)/accelhost-cudasim.so $(BUILD)/sim-selftest ## the simulated GPU, and the program that tests it

$(BUILD)/accelhost-cudasim.so: $(SIM_OBJ)
	$(call say,ld $@)$(CXX) $(SIM_FLAGS) -shared $(if $(SAN),,-Wl$(comma)-z$(comma)defs) -o $@ $^ -ldl -lpthread -lrt

$(BUILD)/sim-selftest: $(SIM_OBJ) $(SIM_TEST_OBJ) $(BUILD)/host/base/numeric/half.o
	$(call say,ld $@)$(CXX) $(SIM_FLAGS) -o $@ $^ -ldl -lpthread -lrt

$(BUILD)/sim/%.cc.o: %.cc
	@mkdir -p $(@D)
	$(call say,c++ $<)$(keep) $(CXX) $(CPPFLAGS) $(SIM_FLAGS) -c -o $@ $<

$(BUILD)/sim/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call say,c++ $<)$(keep) $(CXX) $(CPPFLAGS) $(SIM_FLAGS) -x c++ -c -o $@ $<

# The Lua library is embedded in the binary, as bytecode of the LuaJIT that is linked into it.
$(BUILD)/embed: scripts/embed.c $(LUAJIT_A)
	@mkdir -p $(@D)
	$(call say,ld $@)$(CC) -std=c11 -O1 -Ihost $(shell $(PKG_CONFIG) --cflags luajit) $(WARN) -Werror \
		-o $@ $^ $(LUAJIT_LIBS) -lz -lm -ldl

# A recipe that fails leaves nothing half-written for the next run to believe in.
.DELETE_ON_ERROR:

# After it the sources of all public names, which contain their documentation: accelhost help reads it.
DOCUMENTED := $(LUA) $(sort $(wildcard host/ops/schema/*.def host/bind/*.c host/bind/*/*.c examples/guides/*.md)) \
	host/cli/base/variables.def host/config/settings.def
$(BUILD)/embedded.c: $(DOCUMENTED) $(PAGE) scripts/docs/extract.lua $(BUILD)/embed Makefile
	$(call say,embed lua)$(EMULATOR) $(BUILD)/embed $@ $(BUILD)/embedded.bin $(LUA) $(PAGE) \
		--docs scripts/docs/extract.lua $(DOCUMENTED)

# The op table's parameters as structs.
TABLE := $(wildcard host/ops/schema/*.def) host/autograd/graph/rules.def
$(BUILD)/op_args.h: $(TABLE) scripts/op-args.sh
	@mkdir -p $(@D)
	$(call say,op-args $@)scripts/op-args.sh "$(CC)" > $@.new && mv -f $@.new $@

# The file names of the libraries that are loaded lazily, from those that a library linked with them needs; packages
# read that too.
$(BUILD)/libraries.h: Makefile
	@mkdir -p $(@D)
	@echo | $(CC) -shared $(LDFLAGS) -Wl,--no-as-needed -o $(BUILD)/libraries.so -x c - $(LAZY_LIBS)
	@objdump -p $(BUILD)/libraries.so | sed -n -e 's/.*NEEDED *\(.*blas.*\)/\#define AH_BLAS_FILE "\1"/p' \
		-e 's/.*NEEDED *\(libdnnl.*\)/\#define AH_ONEDNN_FILE "\1"/p' > $@.new
	@mv -f $@.new $@

$(BUILD)/%.o: %.c | deps-check $(BUILD)/op_args.h $(BUILD)/libraries.h
	$(call say,cc $<)$(keep) $(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/embedded.o: $(BUILD)/embedded.c
	$(call say,cc $<)$(keep) $(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# Before all objects: their folders are made once, not by each of them.
FOLDERS := $(sort $(BUILD)/ $(dir $(OBJ) $(TEST_OBJ) $(CUDA_OBJ) $(foreach l,$(LEVELS),$(HOT:%.c=$(BUILD)/$(l)/%.o))))
.PHONY: deps-check
deps-check:
	@mkdir -p $(FOLDERS)
	@test -z "$(strip $(MISSING))" || \
		{ echo "missing libraries: $(strip $(MISSING)); run scripts/install-deps.sh"; exit 1; }

# The headers that a plugin's source includes, for authors of plugins for an installed program.
$(BUILD)/plugin-headers: spec/device/far_device.c $(BUILD)/op_args.h Makefile
	@$(CC) $(filter-out -MMD -MP,$(CPPFLAGS)) -std=c11 -MM $< | tr -s ' \\' '\n\n' | \
		sed -nE 's,^(host|$(BUILD))/(.*\.(h|def))$$,\2,p' > $@.new
	@mv -f $@.new $@

PREFIX  ?= /usr/local
.PHONY: install
install: all $(BUILD)/docs/index.html $(BUILD)/plugin-headers ## into PREFIX=/usr/local, below DESTDIR=
	@scripts/package/install.sh install $(BUILD) "$(DESTDIR)" "$(PREFIX)"

.PHONY: uninstall
uninstall: ## remove the files of install from PREFIX, below DESTDIR
	@scripts/package/install.sh uninstall "$(DESTDIR)" "$(PREFIX)"

PORTABLE := $(patsubst $(BUILD)/%,build-portable/%,$(BUILD)/accelhost $(BUILD)/plugin-headers $(BUILD)/docs/index.html \
            $(IMAGE) $(PLOT) $(STORE) $(REGEX) $(EDIT) $(JUPYTER) $(MPI) $(CUDA))
.PHONY: deb
deb: ## a Debian package for all processors of this architecture, in build-portable
	@scripts/install-deps.sh build
	@$(MAKE) --no-print-directory ARCH=portable $(PORTABLE)
	@scripts/package/build-deb.sh build-portable

# For TARGET, in its BUILD, for the processors of ARCH. A program of this machine writes the documentation, which is the
# same for all.
BUILD_CC ?= gcc
BUILD_CXX ?= g++
.PHONY: wheel
ifeq ($(TARGET),)
wheel: ## a Python wheel and a .tar.gz for this architecture with this glibc or newer, in build-portable; TARGET=
	@scripts/install-deps.sh build wheel
	@$(MAKE) --no-print-directory ARCH=portable $(PORTABLE)
	@scripts/package/build-wheel.py build-portable
else
wheel: $(BUILD)/accelhost plugins $(BUILD)/plugin-headers
	@$(MAKE) --no-print-directory TARGET= SYSROOT= ARCH=native BUILD=build CC="$(BUILD_CC)" CXX="$(BUILD_CXX)" \
		build/docs/index.html
	@rm -rf $(BUILD)/docs
	@cp -R build/docs $(BUILD)/docs
	@TARGET=$(TARGET) SYSROOT=$(SYSROOT) scripts/package/build-wheel.py $(BUILD)
endif

.PHONY: check-wheel
check-wheel: ## install the wheel by pip, uv and pipx and in clean roots of Debian, and train there (root, network)
	@scripts/check-wheel

# Missing packages are installed first, in a separate make, so that the probes above see them.
.PHONY: demo
demo: ##+ install missing packages, build, train MNIST in two processes
	@scripts/install-deps.sh build
	@$(MAKE) --no-print-directory all
	./accelhost launch --num_processes 2 examples/mnist.lua --train_size 20000 --log_losses $(BUILD)/demo.losses
	@printf 'Loss of the last step: %.4f\n' "$$(tail -n 1 $(BUILD)/demo.losses)"

# T=pattern, a part of a spec's path or of a sentence, builds and runs only matching tests.
.PHONY: test test-unit test-jobs test-devices
test: ##+ self-tests and specs; T=pattern for a part; the last line has the counts
test-unit: ##+ the self-tests, and the specs that start no process; T=pattern
test-jobs: ## the specs that start processes; T=pattern
test-devices: ## the specs of devices, and those of tensors on the far device and the simulated GPU; T=pattern
test test-unit test-jobs test-devices: SUITE = $(patsubst test-%,%,$(@:test=all))
test test-unit test-jobs test-devices:
	@scripts/install-deps.sh build test
	@$(MAKE) --no-print-directory $$(scripts/test-needs.sh $(BUILD) "$(SUITE)" "$(T)" "$(SIM)")
	@SUITE=$(SUITE) scripts/test.sh $(BUILD) "$(T)"

.PHONY: check
check: ##+ compiler warnings, lint, dependency rule, style, the README's commands, texts and examples
	@scripts/install-deps.sh build check
	@$(MAKE) --no-print-directory $(BUILD)/accelhost $(BUILD)/selftest plugins
	@$(MAKE) --no-print-directory warnings
	@$(MAKE) --no-print-directory clang
	luacheck -q .
	@! command -v node >/dev/null || git ls-files '*.js' | xargs -n 1 node --check
	scripts/check-deps
	scripts/check-style
	$(BUILD)/accelhost scripts/structure/check.lua
	scripts/check-readme $(BUILD)
	env -u ACCELHOST_DATA $(BUILD)/accelhost scripts/docs/check.lua
	$(BUILD)/accelhost scripts/coverage/table.lua --open
	@! command -v clang >/dev/null || scripts/fuzz.sh 1000

# Files that compiled with a warning, of all that BUILD has; another compiler's warnings stop no build.
WARNINGS = $(wildcard $(addsuffix .warnings,$(OBJ) $(TEST_OBJ) $(PLUGINS) $(IMAGE) $(PLOT) $(STORE) $(REGEX) \
	$(EDIT) $(JUPYTER) $(MPI) \
	$(CUDA_OBJ) $(CUDA_IMAGES) $(SIM_OBJ) $(SIM_TEST_OBJ) $(foreach level,$(LEVELS),$(HOT:%.c=$(BUILD)/$(level)/%.o))))
.PHONY: warnings
warnings:
	@$(if $(WARNINGS),cat $(WARNINGS) >&2; echo "check: $(words $(WARNINGS)) files compile with warnings" >&2; exit 1,:)

# For a processor without half floats, which clang supports less of than gcc.
CLANG_OK := $(if $(shell command -v clang),$(patsubst %.c,$(BUILD)/clang/%.ok,$(SRC) $(TEST_SRC)))
.PHONY: clang
clang: $(CLANG_OK) ## warnings of clang for the C files that changed, where it is installed

$(BUILD)/clang/%.ok: %.c | deps-check $(BUILD)/op_args.h $(BUILD)/libraries.h
	@mkdir -p $(@D)
	$(call say,clang $<)clang -std=c11 -march=x86-64-v3 -fopenmp -fsyntax-only $(WARN) -Werror $(CPPFLAGS) \
		-MF $(@:.ok=.d) -MT $@ $<
	@touch $@

.PHONY: asan
asan: ## everything under AddressSanitizer; T=pattern
	@export ASAN_OPTIONS="$(ASAN_FLAGS)" LSAN_OPTIONS="$(LSAN_FLAGS)" ACCELHOST_CLOSE=1; $(call sanitized,address)

.PHONY: ubsan
ubsan: ## everything under UndefinedBehaviorSanitizer; T=pattern
	@export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1"; $(call sanitized,undefined)

# The libraries are not built with TSan; the pool of threads that runs them and the kernels is.
.PHONY: tsan
tsan: ## the parts with their own threads under ThreadSanitizer; T=pattern
	@export TSAN_OPTIONS="$(TSAN_FLAGS)" SPECS="$(TSAN_SPECS)"; \
	$(call sanitized,thread)

TSAN_SPECS = spec/accelerator spec/checkpoint spec/cli/top_spec.lua spec/data spec/distributed spec/ops spec/profiler
# GCC 12 misreads where glibc keeps the thread-local variables of opened libraries: LeakSanitizer would fall over that.
ASAN_FLAGS = allocator_may_return_null=1:handle_segv=0:handle_sigbus=0:intercept_tls_get_addr=0
LSAN_FLAGS = suppressions=$(CURDIR)/scripts/suppressions/leaks.txt:print_suppressions=0
TSAN_FLAGS = second_deadlock_stack=1:handle_segv=0 \
	handle_sigbus=0 history_size=7
# Specs that measure memory would measure the sanitizer.
sanitized  = scripts/install-deps.sh build test && \
	$(MAKE) --no-print-directory SAN=$(1) build-$(1)/accelhost build-$(1)/selftest plugins \
		$(if $(filter thread,$(1)),,$(SIM)) && \
	ACCELHOST_TEST_SLOWNESS=5 EXCLUDE=steady_spec scripts/test.sh build-$(1) "$(T)"

.PHONY: test-sim
test-sim: ## specs of tensors, ops, modules on the simulated GPU; T=pattern, ACCELHOST_SIM_SEED=n, SAN=address|undefined
	@scripts/install-deps.sh build test
	@$(MAKE) --no-print-directory $(BUILD)/accelhost plugins sim
	@$(if $(SAN),export ASAN_OPTIONS="$(ASAN_FLAGS)" LSAN_OPTIONS="$(LSAN_FLAGS)" ACCELHOST_CLOSE=1 \
		ACCELHOST_TEST_SLOWNESS=5 UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1";) \
	ACCELHOST_TEST_DEVICE=cuda ACCELHOST_CUDA=sim DEVICE_ONLY=1 scripts/test.sh $(BUILD) "$(T)"

.PHONY: test-gpu
test-gpu: ## the same specs on a real card; fails without one; T=pattern
	@scripts/install-deps.sh build test
	@$(MAKE) --no-print-directory all
	@scripts/gpu/test.sh $(BUILD) "$(T)"

# A build with few requirements on the target machine: no oneDNN (40 MB), libraries in the program's folder. It is for
# one kind of card, GPU_ARCHS, and for the processors of machines with cards: more would not fit the bundle's limit.
GPU_BUILD = build-gpu
GPU_ARCHS ?= 90
GPU_PARTS = accelhost accelhost-cuda.so
.PHONY: gpu-bundle
gpu-bundle: ## one folder, build-gpu/bundle, that tests and measures on a machine with a card; README in it
	@scripts/install-deps.sh build test
	@$(MAKE) --no-print-directory ARCH=$(if $(filter x86_64,$(MACHINE)),x86-64-v3,portable) CUDA_ARCHS="$(GPU_ARCHS)" \
		BUILD=$(GPU_BUILD) HAVE_ONEDNN= RPATH='$$$$ORIGIN/lib' \
		$(GPU_PARTS:%=$(GPU_BUILD)/%) $(if $(SIM),$(GPU_BUILD)/accelhost-cudasim.so)
	@scripts/gpu/bundle.sh $(GPU_BUILD)

.PHONY: gpu-checks
gpu-checks: ## all that a card shows, within 8 minutes, with a table of goals at the end; SECONDS_IN_ALL=480
	@scripts/gpu/here.sh

.PHONY: cuda-usage
cuda-usage: ## registers, shared memory and spills of each CUDA kernel; writes the list of kernels (needs nvcc)
	@scripts/cuda/usage.sh

.PHONY: test-aarch64
test-aarch64: ## compile for aarch64 and run the tests there by qemu; T=pattern; prints missing commands
	@scripts/aarch64.sh test "$(T)"

# Most laptops' processors lack AVX-512, and both libraries have other kernels for them than for servers.
.PHONY: test-avx2
test-avx2: ## the specs of ops, layers, optimizers, models, as on a processor without AVX-512 (x86-64 only); T=pattern
	@scripts/install-deps.sh build test
	@$(MAKE) --no-print-directory BUILD=build-avx2 ARCH=x86-64-v3 NVCC= $(addprefix build-avx2/, \
		accelhost selftest accelhost-image.so accelhost-regex.so)
	@ONEDNN_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell SUITE=unit \
		SPECS="spec/nn spec/ops spec/optim spec/models spec/linalg" scripts/test.sh build-avx2 "$(T)"

.PHONY: test-jitoff
test-jitoff: ## the specs without LuaJIT's compiler
	@scripts/install-deps.sh build test
	@$(MAKE) --no-print-directory all $(PLUGINS) $(BUILD)/without_calls $(BUILD)/large_pages.so
	@SKIP_SELFTEST=1 HOST_FLAGS=--jit=off scripts/test.sh $(BUILD) "$(T)"

.PHONY: test-gcstress
test-gcstress: ## the specs with a collector that never rests
	@scripts/install-deps.sh build test
	@$(MAKE) --no-print-directory all $(PLUGINS) $(BUILD)/without_calls $(BUILD)/large_pages.so
	@SKIP_SELFTEST=1 HOST_FLAGS=--gc-stress scripts/test.sh $(BUILD) "$(T)"

# Memory runs out in a separate build, with the leaks watched.
.PHONY: test-faults
test-faults: ## kills, stalls, disagreements, memory that runs out: spec/faults, T=pattern, N=faults of each program
	@scripts/install-deps.sh build test
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory SAN=address FAIL_ALLOC=1 DEBUG=1 build-address-fail-alloc/accelhost
	@FAIL_ALLOC_BINARY=build-address-fail-alloc/accelhost ASAN_OPTIONS="$(ASAN_FLAGS)" LSAN_OPTIONS="$(LSAN_FLAGS)" \
		N="$(N)" scripts/faults.sh $(BUILD) "$(T)"

.PHONY: test-curves
test-curves: ## PyTorch's loss curves of BasicNet in float64 to their last step
	@scripts/install-deps.sh build test
	@$(MAKE) --no-print-directory all
	@ACCELHOST_PARITY=full SKIP_SELFTEST=1 scripts/test.sh $(BUILD) spec/parity/parity_spec.lua

.PHONY: test-slow
test-slow: ## tests of minutes: checkpoints under SIGKILL and on full disks; T=pattern, N=kills
	@scripts/install-deps.sh build test
	@$(MAKE) --no-print-directory all $(BUILD)/fail_calls.so
	@N="$(N)" scripts/faults.sh $(BUILD) "$(T)" spec/slow

$(BUILD)/fail_calls.so: spec/slow/fail_calls.c
	@mkdir -p $(@D)
	$(call say,cc $@)$(keep) $(CC) -D_GNU_SOURCE -std=c11 -O1 -g $(WARN) -fPIC -shared -o $@ $< -ldl

.PHONY: fuzz
fuzz: ## the readers of files against broken ones, RUNS=200000 inputs each (needs clang)
	@scripts/fuzz.sh $(or $(RUNS),200000) $(T)

.PHONY: bench
bench: ##+ one table next to PyTorch, and build/bench.json; ROWS="mlp_1t ..." for a part, REPEAT=5, AGAINST=program
	@scripts/install-deps.sh build
	@$(MAKE) --no-print-directory all
	@./accelhost scripts/bench/run.lua --repeat $(or $(REPEAT),5) --json $(BUILD)/bench.json \
		--rows "$(ROWS)" $(if $(AGAINST),--against $(AGAINST))

.PHONY: bench-gate
bench-gate: ## rows of the bench more than GATE=3 percent behind those of COMMIT=HEAD; ROWS, REPEAT as for bench
	@scripts/bench/gate.sh "$(BUILD)" "$(or $(COMMIT),HEAD)" --repeat $(or $(REPEAT),7) --gate $(or $(GATE),3) \
		--rows "$(ROWS)"

.PHONY: bench-gpu
bench-gpu: ## training steps and kernels on a card next to PyTorch; ROWS="gpt2 mnist_64 kernels", SECONDS=240
	@$(MAKE) --no-print-directory all
	@./accelhost scripts/bench/gpu/run.lua --seconds $(or $(SECONDS),0) --json $(BUILD)/bench-gpu.json --rows "$(ROWS)"

# PyTorch's own folder, outside BUILD: it is 4 GB and outlives a rebuild. Nothing else needs it.
TORCH_DIR ?= build-torch
.PHONY: compare
compare: ## random programs here and in the newest PyTorch (installed into TORCH_DIR); COUNT=100000 FIRST=0 SEED=n
	@scripts/install-deps.sh build
	@$(MAKE) --no-print-directory all
	@scripts/compare/install.sh $(TORCH_DIR)
	@PYTHONPATH=$(TORCH_DIR) PYTHONDONTWRITEBYTECODE=1 CUDA_VISIBLE_DEVICES= $(or $(PYTHON),python3) \
		scripts/compare/run.py --binary $(BUILD)/accelhost --count $(or $(COUNT),100000) --first $(or $(FIRST),0) \
		$(if $(SEED),--seed $(SEED))

.PHONY: docs
docs: all ## the reference in build/docs: a site of one file, Markdown, manual pages, types for editors
	@$(MAKE) --no-print-directory $(BUILD)/docs/index.html

$(BUILD)/docs/index.html: $(BUILD)/accelhost README.md $(wildcard scripts/docs/* scripts/coverage/*)
	$(call say,docs $(@D))$(BUILD)/accelhost scripts/docs/build.lua $(@D)

.PHONY: format
format: ## clang-format on host/ and spec/host/
	clang-format -i $(wildcard host/*.[ch] host/*/*.[ch] host/*/*/*.[ch] host/*/*/*/*.[ch] \
		spec/host/*.[ch])

.PHONY: clean
clean: ## remove everything built
	rm -rf build build-* accelhost

.PHONY: help
help: ## the targets that most work needs
	@sed -nE 's/^([a-z-]+):.*##\+ /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16
	@echo "make help-all lists the others; the variables are at the top of the Makefile"

.PHONY: help-all
help-all: ## all targets
	@sed -nE 's/^([a-z-]+):.*##\+? /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

-include $(OBJ:.o=.d) $(TEST_OBJ:.o=.d) $(PLUGINS:.so=.d) $(CUDA_OBJ:.o=.d) $(CUDA_IMAGES:.fatbin=.nv.d) \
	$(SIM_OBJ:.o=.d) $(SIM_TEST_OBJ:.o=.d) $(CLANG_OK:.ok=.d)

endif
