--- The kernel specification: the folder by which Jupyter finds this program.
local C = require "accelhost._C"
local logo = require "accelhost.jupyter.logo"

local function env(name)
  local value = os.getenv(name)
  return value ~= "" and value or nil
end

local function user_folder()
  local own = env "JUPYTER_DATA_DIR"
  if own then return own end
  local data, home = env "XDG_DATA_HOME", env "HOME"
  if not data and not home then error("HOME is not set, so there is no user folder; use --prefix P", 0) end
  return (data or home .. "/.local/share") .. "/jupyter"
end

-- The active environment's; else that of python3.
local function sys_prefix()
  local prefix = env "VIRTUAL_ENV" or env "CONDA_PREFIX"
  if prefix then return prefix end
  local pipe = io.popen "python3 -c 'import sys; print(sys.prefix)' 2>/dev/null"
  prefix = pipe and pipe:read "*l"
  if pipe then pipe:close() end
  if (prefix or "") == "" then error("--sys-prefix: no Python environment is active, and there is no python3", 0) end
  return prefix
end

local folders = {
  user = user_folder,
  prefix = function(prefix) return prefix .. "/share/jupyter" end,
  ["sys-prefix"] = function() return sys_prefix() .. "/share/jupyter" end,
}

local function spec(program)
  return C.json.encode({
    argv = C.json.array {program, "jupyter", "kernel", "-f", "{connection_file}"},
    display_name = "Lua (accelhost)", language = "lua", interrupt_mode = "message", metadata = {debugger = false},
  }, 2) .. "\n"
end

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

local actions = {}

actions.install = function(folder, program)
  C.io.make_folder(folder)
  C.io.write_text(folder .. "/kernel.json", spec(program))
  C.io.write_text(folder .. "/logo-svg.svg", logo.svg())
  local picture = logo.png(64)
  if picture then C.io.write_text(folder .. "/logo-64x64.png", picture) end
  io.write(("installed %s\n"):format(folder))
  return 0
end

-- Only files that install writes are removed.
actions.uninstall = function(folder)
  if not exists(folder .. "/kernel.json") then
    error(("uninstall: there is no kernel in %s"):format(folder), 0)
  end
  for _, name in ipairs {"kernel.json", "logo-svg.svg", "logo-64x64.png"} do os.remove(folder .. "/" .. name) end
  local fine, why = os.remove(folder)
  if not fine then error(("uninstall: %s"):format(why), 0) end
  io.write(("removed %s\n"):format(folder))
  return 0
end

--- Install or remove the kernel.
---@param action string "install" or "uninstall"
---@param place string "user", "prefix" or "sys-prefix"
---@param program string its path
---@return integer # the exit code
return function(action, place, prefix, name, program)
  local fine, result = pcall(function()
    if not name:find "^[%w_.-]+$" or name:find "^%.+$" then
      error(("--name: expected letters, digits, '.', '_' and '-', got '%s'"):format(name), 0)
    end
    return actions[action](("%s/kernels/%s"):format(folders[place](prefix), name:lower()), program)
  end)
  if fine then return result end
  io.stderr:write("accelhost jupyter: ", tostring(result), "\n")
  return 1
end
