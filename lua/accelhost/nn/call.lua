--- Calling a module: hooks, forward, and the names of the modules that are running.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local forward_hooks = require "accelhost.nn.forward_hooks"
local hooks = require "accelhost.nn.hooks"
local pack = require "accelhost.util.pack"

local fail = arguments.fail

--- Add the hooks and its __call to the Module class.
---@param is_module fun(value: any): boolean
---@return fun(): string? path the modules that are running now
return function(Module, is_module)
  --- Call `hook(module, arguments)` before each forward; it may return new arguments (one value or a table of them).
  -- With {prepend = true} it runs before the hooks that are there. With {with_kwargs = true} it is
  -- `hook(module, arguments, options)`, the options being the trailing table of named arguments (empty without one),
  -- and may return both, as two tables.
  ---@param hook fun(module: Module, arguments: table, options: table?): any
  ---@return {remove: fun()} # its remove() removes the hook
  Module.register_forward_pre_hook = hooks.method("register_forward_pre_hook", "_forward_pre_hooks", "with_kwargs")

  --- Call `hook(module, arguments, output)` after each forward; it may return another output. With {prepend = true} it
  -- runs before the hooks that are there; with {with_kwargs = true} it is `hook(module, arguments, options, output)`,
  -- the options being the trailing table of named arguments. With {always_call = true} it runs also when forward or a
  -- hook fails, with the output nil where there is none yet; the error is then raised again, and one of the hook is a
  -- warning.
  ---@param hook fun(module: Module, arguments: table, output: any): any
  ---@return {remove: fun()} # its remove() removes the hook
  Module.register_forward_hook = hooks.method("register_forward_hook", "_forward_hooks", "with_kwargs", "always_call")

  --- Call `hook(module, grad_input, grad_output)` (two arrays) when the gradients with respect to the module's tensor
  -- arguments are known. With one such argument the hook may return its new gradient.
  ---@param hook fun(module: Module, grad_input: table, grad_output: table): any
  ---@return {remove: fun()} # its remove() removes the hook
  Module.register_full_backward_hook = hooks.method("register_full_backward_hook", "_backward_hooks")

  --- Call `hook(module, grad_output)` (an array) when the gradients with respect to the module's results are known.
  -- With one result the hook may return its new gradient, which replaces it in the module's backward.
  ---@param hook fun(module: Module, grad_output: table): any
  ---@return {remove: fun()} # its remove() removes the hook
  Module.register_full_backward_pre_hook = hooks.method("register_full_backward_pre_hook", "_backward_pre_hooks")

  --- Pass the arguments through identities whose gradients are observed, and likewise the output.
  local function watch_inputs(self, given)
    local state = {grad_input = {}, grad_output = {}, waiting = 0, inputs = 0}
    for i = 1, given.n do
      local value = given[i]
      if C.is_tensor(value) and value.requires_grad then
        state.inputs = state.inputs + 1
        state.waiting = state.waiting + 1
        local watched = value:view_as(value)
        C.autograd.register_hook(watched, function(grad)
          state.grad_input[i] = grad
          state.waiting = state.waiting - 1
          if state.waiting > 0 then return nil end
          local result
          for _, entry in ipairs(self._backward_hooks or {}) do
            local changed = entry.call(self, state.grad_input, state.grad_output)
            if changed ~= nil then
              if state.inputs > 1 then
                fail("a full backward hook can replace the gradient of one tensor argument, %s has %d", self._name,
                  state.inputs)
              end
              result = C.is_tensor(changed) and changed or changed[i]
              state.grad_input[i] = result
            end
          end
          return result
        end)
        given[i] = watched
      end
    end
    return state
  end

  -- The gradient of the one result as the hooks leave it.
  local function run_pre_hooks(self, state, i, outputs)
    local result
    for _, entry in ipairs(self._backward_pre_hooks or {}) do
      local changed = entry.call(self, state.grad_output)
      if changed ~= nil then
        if outputs > 1 then
          fail("a full backward pre-hook can replace the gradient of one result, %s has %d", self._name, outputs)
        end
        result = C.is_tensor(changed) and changed or changed[i]
        state.grad_output[i] = result
      end
    end
    return result
  end

  local function watch_outputs(self, state, results)
    local outputs, waiting = 0, 0
    for i = 1, results.n do
      local value = results[i]
      if C.is_tensor(value) and value.requires_grad then
        local watched = value:view_as(value)
        outputs, waiting = outputs + 1, waiting + 1
        C.autograd.register_hook(watched, function(grad)
          state.grad_output[i] = grad
          waiting = waiting - 1
          local result = waiting == 0 and run_pre_hooks(self, state, i, outputs) or nil
          if state.inputs == 0 and i == 1 then
            for _, entry in ipairs(self._backward_hooks or {}) do entry.call(self, {}, state.grad_output) end
          end
          return result
        end)
        results[i] = watched
      end
    end
  end

  local function run_with_hooks(self, call)
    forward_hooks.before(self, call)
    local watch = (self._backward_hooks or self._backward_pre_hooks) and C.autograd.is_grad_enabled()
    local state = watch and watch_inputs(self, call.given)
    call.results = pack(self.forward(self, unpack(call.given, 1, call.given.n)))
    forward_hooks.after(self, call)
    if state then watch_outputs(self, state, call.results) end
    return unpack(call.results, 1, call.results.n)
  end

  local function through(...)
    return ...
  end

  -- forward -> the most arguments it accepts
  local most = setmetatable({}, {__mode = "k"})

  local function limit_of(forward)
    local info = type(forward) == "function" and debug.getinfo(forward, "u")
    -- One without parameters only reports that the module cannot be called.
    local limit = info and not info.isvararg and info.nparams > 1 and info.nparams - 1 or math.huge
    if info then most[forward] = limit end
    return limit
  end

  local function check_count(self, limit, ...)
    local given = select("#", ...)
    while given > limit and (select(given, ...)) == nil do given = given - 1 end
    if given > limit then
      fail("forward: expected at most %d argument%s, got %d", limit, limit == 1 and "" or "s", given)
    end
  end

  --- __call of instances: hooks and forward. Its frames are how an error finds out which modules are running, so it
  -- must stay on the stack while forward runs: no tail call.
  function Module._call(self, ...)
    local forward = self.forward
    local limit = most[forward] or limit_of(forward)
    if select("#", ...) > limit then check_count(self, limit, ...) end
    if hooks.watch(self) then
      return through(forward_hooks.protected(self, run_with_hooks, ...))
    end
    return through(forward(self, ...))
  end

  --- The modules that are running now, as a message names them: "layers.0.fc2 (Linear)"; nil outside of any. It reads
  -- the Lua stack, so that calling a module costs nothing for it and a caught error leaves nothing behind.
  ---@return string?
  local function path()
    local running, level = {}, 2
    while true do
      local info = debug.getinfo(level, "f")
      if not info then break end
      if info.func == Module._call then
        local _, module = debug.getlocal(level, 1)
        if is_module(module) then table.insert(running, 1, module) end
      end
      level = level + 1
    end
    if #running == 0 then return nil end
    local names = {}
    for i = 2, #running do
      local name
      for child_name, child in running[i - 1]:named_children() do
        if child == running[i] then
          name = child_name
          break
        end
      end
      if not name then
        -- A grandchild, reached past a module that was not called (a ModuleList, or forward called by hand).
        for deep_name, module in running[i - 1]:named_modules() do
          if module == running[i] then
            name = deep_name
            break
          end
        end
      end
      if name then names[#names + 1] = name end
    end
    local last = running[#running]
    if #names == 0 then return last._name end
    return table.concat(names, ".") .. " (" .. last._name .. ")"
  end

  -- The binding prepends it to the text of an error.
  debug.getregistry()["accelhost.module_path"] = path

  return path
end
