--- The manifest of a checkpoint: its files, their sizes and hashes, and the program that wrote it. It is written by
--- host/io/saver.c; its last member is the hash of all bytes before it.
local C = require "accelhost._C"

local manifest = {}

local NAME, FORMAT, VERSION = "manifest.json", "accelhost checkpoint", 1

-- The properties besides the script that determine the bits of a run.
local determining = {"world_size", "threads", "cpu", "kernels", "blas", "onednn", "bf16"}

-- The kernel makes the text when it is read, all processors of it: a few lines are enough.
local model

local function processor()
  if model then return model end
  local file = io.open "/proc/cpuinfo"
  model = file and (file:read(1024) or ""):match "model name%s*:%s*([^\n]+)" or "unknown"
  if file then file:close() end
  return model
end

--- Return the properties that a checkpoint made now would record.
---@return table<string, any>
function manifest.facts()
  local system = C.system
  local blas, onednn = system.libraries()
  return {
    format = FORMAT, version = VERSION, accelhost = system.version, world_size = C.comm.size(),
    threads = system.get_num_threads(), cpu = processor(), kernels = system.kernels, blas = blas,
    onednn = onednn, bf16 = system.bf16,
  }
end

--- List the differences between a checkpoint's properties and this process's, except the number of processes: "threads:
--- 2, now 1".
function manifest.differences(facts)
  local now, list = manifest.facts(), {}
  for _, name in ipairs(determining) do
    if name ~= "world_size" and facts[name] ~= now[name] then
      list[#list + 1] = ("%s: %s, now %s"):format(name, tostring(facts[name]), tostring(now[name]))
    end
  end
  return list
end

-- The text, checked against its own hash.
local function text_of(folder)
  local file, reason = io.open(folder .. "/" .. NAME, "rb")
  if not file then return nil, ("it has no %s (%s)"):format(NAME, tostring(reason):match "[^:]*$":gsub("^ ", "")) end
  local text = file:read "*a" or ""
  file:close()
  local head, hash = text:match '^(.*),\n  "sha256": "([0-9a-f]+)"\n}\n$'
  if not head or #hash ~= 64 or C.io.sha256{head} ~= hash then return nil, NAME .. " is damaged" end
  return text
end

--- Read a manifest; nil and the reason when there is none or it is damaged.
---@return table?, string? reason
function manifest.read(folder)
  local text, reason = text_of(folder)
  if not text then return nil, reason end
  local fine, facts = pcall(C.json.decode, text)
  if not fine or type(facts.files) ~= "table" then return nil, NAME .. " is damaged" end
  if facts.format ~= FORMAT then return nil, NAME .. " is not of a checkpoint of accelhost" end
  if facts.version ~= VERSION then
    return nil, ("its format has version %s, this program reads %d"):format(tostring(facts.version), VERSION)
  end
  return facts
end

--- Compare files with the manifest: every `step`-th of the sorted names from the `first`-th on. The reason why one does
--- not fit, nil when all do.
---@param first integer
---@return string?
function manifest.check(folder, facts, first, step)
  local names = {}
  for name, entry in pairs(facts.files) do
    if entry.sha256 then names[#names + 1] = name end -- a link to a folder has none
  end
  table.sort(names)
  for i = first, #names, step do
    local name = names[i]
    local path, entry = folder .. "/" .. name, facts.files[name]
    local kind, reason = C.data.look(path)
    if kind ~= "file" then return ("%s is missing%s"):format(name, reason and " (" .. reason .. ")" or "") end
    local hash, size = C.io.sha256_file(path)
    if not hash then return ("%s cannot be read: %s"):format(name, size) end
    if size ~= entry.size then
      return ("%s has %.0f bytes, expected %.0f by the manifest"):format(name, size, entry.size)
    end
    if hash ~= entry.sha256 then return name .. " is damaged (its SHA-256 is not the manifest's)" end
  end
end

return manifest
