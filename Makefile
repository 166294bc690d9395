# accelhost. `make help` lists the targets. BUILD=dir builds elsewhere; DEBUG=1 without optimisation; ARCH= to target
# another processor; SAN=address|undefined|thread for a sanitizer build (in its own directory).
.DEFAULT_GOAL := all
MAKEFLAGS += --no-builtin-rules

CC      ?= gcc
SAN     ?=
BUILD   ?= build$(if $(SAN),-$(SAN))
ARCH    ?= native
OPT     := $(if $(DEBUG),-O0 -g3,-O3 -g)

PKGS    := luajit yaml-0.1 jansson zlib
MISSING := $(shell for p in $(PKGS); do pkg-config --exists $$p || echo $$p; done)
# The openmp build of OpenBLAS, by path with an rpath: the other builds bring a second thread pool.
BLAS_DIR   := $(firstword $(wildcard /usr/lib/*/openblas-openmp))
HAVE_ONEDNN := $(if $(wildcard /usr/include/dnnl.h /usr/include/*/dnnl.h),yes)

LUAJIT_A := $(shell pkg-config --variable=libdir luajit 2>/dev/null)/libluajit-5.1.a
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings \
           -Wno-unused-parameter -Wno-unknown-pragmas
# -ffp-contract=off: results must not depend on where the compiler finds a multiply-add; kernels ask for it by fma().
CFLAGS  += -std=c11 $(OPT) -march=$(ARCH) -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp \
           -fasynchronous-unwind-tables -fno-omit-frame-pointer $(WARN) $(if $(WERROR),-Werror) \
           $(if $(SAN),-fsanitize=$(SAN))
CPPFLAGS += -D_GNU_SOURCE -Ihost -Ispec/host -I$(BUILD) $(shell pkg-config --cflags $(PKGS) 2>/dev/null) -MMD -MP
LDFLAGS += -rdynamic -fopenmp $(if $(SAN),-fsanitize=$(SAN)) $(if $(BLAS_DIR),-L$(BLAS_DIR) -Wl$(comma)-rpath$(comma)$(BLAS_DIR))
comma   := ,
LDLIBS  := $(LUAJIT_A) -lopenblas $(if $(HAVE_ONEDNN),-ldnnl) -lyaml -ljansson -lz -lm -ldl -lpthread

# oneDNN sits behind one file; the stub takes its place where the library is missing.
ONEDNN_OFF := $(if $(HAVE_ONEDNN),host/cpu/onednn_stub.c,host/cpu/onednn.c)
SRC  := $(filter-out $(ONEDNN_OFF),$(sort $(wildcard host/*.c host/*/*.c)))
OBJ  := $(SRC:%.c=$(BUILD)/%.o) $(BUILD)/embedded.o
LUA  := $(sort $(shell find lua -name '*.lua'))
TEST_SRC := $(sort $(wildcard spec/host/*.c))
TEST_OBJ := $(TEST_SRC:%.c=$(BUILD)/%.o)

.PHONY: all
all: $(BUILD)/accelhost ## build ./accelhost
	@ln -sf $(BUILD)/accelhost accelhost.tmp && mv -f accelhost.tmp accelhost

$(BUILD)/accelhost: $(OBJ)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/selftest: $(filter-out $(BUILD)/host/main.o,$(OBJ)) $(TEST_OBJ)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# The Lua library travels inside the binary.
$(BUILD)/embedded.c: $(LUA) scripts/embed.sh Makefile
	@mkdir -p $(@D)
	scripts/embed.sh $(LUA) > $@

$(BUILD)/%.o: %.c | deps-check
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/embedded.o: $(BUILD)/embedded.c
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

.PHONY: deps-check
deps-check:
	@test -z "$(MISSING)" || { echo "missing libraries: $(MISSING); run scripts/install-deps.sh"; exit 1; }

.PHONY: clean
clean: ## remove everything built
	rm -rf build build-* accelhost

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

-include $(OBJ:.o=.d) $(TEST_OBJ:.o=.d)
