--- Folders of samples: ImageFolder, and DatasetFolder for files of any kind.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local dataset = require "accelhost.data.sets.dataset"

local fail, describe, signature = arguments.fail, arguments.describe, arguments.signature
local native = C.data
local folder = {}

-- Names in a folder, sorted by their bytes.
local function names_in(path)
  local names = native.list_folder(path)
  table.sort(names)
  return names
end

-- Add the files below `path` that are wanted, sorted, folder after folder.
local function add_files(path, wanted, add, depth)
  if depth > 100 then fail("'%s': folders nested deeper than 100 (does one link to itself?)", path) end
  local inner = {}
  for _, name in ipairs(names_in(path)) do
    local full = path .. "/" .. name
    local kind = native.look(full)
    if kind == "folder" then
      inner[#inner + 1] = full
    elseif kind == "file" and wanted(full) then
      add(full)
    end
  end
  for _, full in ipairs(inner) do add_files(full, wanted, add, depth + 1) end
end

local function ending_test(extensions)
  local known = {}
  for i = 1, #extensions do
    local extension = extensions[i]
    if type(extension) ~= "string" then
      fail("DatasetFolder: extensions: item %d is %s, expected a text", i, describe(extension))
    end
    known[#known + 1] = extension:lower()
  end
  return function(path)
    path = path:lower()
    for i = 1, #known do
      if path:sub(-#known[i]) == known[i] then return true end
    end
    return false
  end
end

-- Classes, samples and targets of root/CLASS/**.
local function find(self, root, wanted, what, allow_empty)
  self.classes, self.class_to_idx, self.samples, self.targets = {}, {}, {}, {}
  for _, name in ipairs(names_in(root)) do
    if native.look(root .. "/" .. name) == "folder" then
      self.classes[#self.classes + 1] = name
      self.class_to_idx[name] = #self.classes - 1
    end
  end
  if #self.classes == 0 then fail("%s: '%s' holds no folder, expected one for each class", self._name, root) end
  local empty = {}
  for target, name in ipairs(self.classes) do
    local before = #self.samples
    add_files(root .. "/" .. name, wanted, function(path)
      self.samples[#self.samples + 1], self.targets[#self.targets + 1] = path, target - 1
    end, 0)
    if #self.samples == before then empty[#empty + 1] = name end
  end
  if #empty > 0 and not allow_empty then
    fail("%s: no file of the class%s %s%s", self._name, #empty > 1 and "es" or "", table.concat(empty, ", "), what)
  end
end

---@field classes string[] the folders' names, sorted: class 0 is classes[1]
---@field class_to_idx table<string, integer>
---@field samples string[] paths; samples[i + 1] is that of sample i
---@field targets integer[] their classes
local DatasetFolder = dataset.Dataset:extend "DatasetFolder"
folder.DatasetFolder = DatasetFolder

local function init(self, root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
  if native.look(root) ~= "folder" then fail("%s: root: '%s' is no folder", self._name, root) end
  local what = ""
  if extensions and #extensions > 0 then what = (" (known endings: %s)"):format(table.concat(extensions, ", ")) end
  find(self, root, is_valid_file or ending_test(extensions), is_valid_file and "" or what, allow_empty)
  self.root, self.loader, self.transform, self.target_transform = root, loader, transform, target_transform
end

local read_folder = signature("DatasetFolder", {
  "root: string", "loader: callable", {"extensions: list"}, {"transform: callable"}, {"target_transform: callable"},
  {"is_valid_file: callable"}, {"allow_empty: flag", false},
})

--- Files below root/CLASS, sorted, each loaded when it is asked for. Sample i is the result of the loader for its path,
--- and the class as a number from 0.
--
--   local root = os.tmpname()
--   os.execute(("rm %s; mkdir -p %s/bad %s/fine; echo good > %s/fine/1.txt"):format(root, root, root, root))
--   local set = data.DatasetFolder(root, io.lines, {".txt"}, {allow_empty = true})
--   print(#set, set.classes[2], select(2, set:get(0)))  --> 1  fine  1
---@param loader fun(path: string): any
---@param extensions? string[]|table endings of the files that count, such as ".txt"
---@param transform? function of the loader's result
---@param target_transform? function of the class
---@param is_valid_file? fun(path: string): boolean is it a sample? instead of extensions
---@param allow_empty? boolean may a class have no file? default false
function DatasetFolder:init(...)
  local root, loader, extensions, transform, target_transform, is_valid_file, allow_empty = read_folder(...)
  if (extensions ~= nil) == (is_valid_file ~= nil) then
    fail("DatasetFolder: expected either extensions or is_valid_file")
  end
  init(self, root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
end

function DatasetFolder:len() return #self.samples end

function DatasetFolder:get(i)
  local path = type(i) == "number" and self.samples[i + 1]
  if not path then fail("%s: index %s is out of range (0 to %d)", self._name, tostring(i), #self.samples - 1) end
  local sample, target = self.loader(path), self.targets[i + 1]
  if self.transform then sample = self.transform(sample) end
  if self.target_transform then target = self.target_transform(target) end
  return sample, target
end

local ImageFolder = DatasetFolder:extend "ImageFolder"
folder.ImageFolder = ImageFolder

local ENDINGS = {".jpg", ".jpeg", ".png"}

local function read_rgb(path) return native.read_image(path, "rgb") end

local read_images = signature("ImageFolder", {
  "root: string", {"transform: callable"}, {"target_transform: callable"}, {"loader: callable"},
  {"is_valid_file: callable"}, {"allow_empty: flag", false},
})

--- Images below root/CLASS (.jpg, .jpeg, .png): sample i is a uint8 image [3, rows, columns], transformed, and the
--- class as a number from 0.
--
--   | local train = data.ImageFolder("photos/train", {transform = transforms.Compose {
--     transforms.RandomResizedCrop(224), transforms.ToTensor()}})
---@param loader? fun(path: string): any default: read_image as "rgb"
---@param is_valid_file? fun(path: string): boolean which files count
---@param allow_empty? boolean may a class have no file? default false
function ImageFolder:init(...)
  local root, transform, target_transform, loader, is_valid_file, allow_empty = read_images(...)
  init(self, root, loader or read_rgb, ENDINGS, transform, target_transform, is_valid_file, allow_empty)
end

return folder
