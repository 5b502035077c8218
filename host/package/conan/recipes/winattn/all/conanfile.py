# SPDX-License-Identifier: Apache-2.0
import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, rmdir

required_conan_version = ">=2.1"


class WinattnConan(ConanFile):
    name = "winattn"
    description = "Windowed attention for every OpenCL device"
    license = "Apache-2.0"
    url = "https://github.com/conan-io/conan-center-index"
    topics = ("attention", "opencl", "gpu", "transformer", "swin")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False],
               "models": [True, False]}
    default_options = {"shared": False, "fPIC": True, "models": True}
    implements = ["auto_shared_fpic"]
    languages = "C"

    def layout(self):
        cmake_layout(self, src_folder="src")

    def requirements(self):
        # winattn.h includes <CL/cl.h>, on macOS the framework's
        if self.settings.os != "Macos":
            self.requires("opencl-headers/2023.12.14",
                          transitive_headers=True)
            self.requires("opencl-icd-loader/2023.12.14",
                          transitive_libs=True)
        if self.options.models:  # which reads files of weights
            self.requires("cjson/1.7.18")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def generate(self):
        tc = CMakeToolchain(self)  # BUILD_SHARED_LIBS is the option shared
        tc.cache_variables["WINATTN_TESTS"] = False
        tc.cache_variables["WINATTN_BENCH"] = False
        tc.cache_variables["WINATTN_MODELS"] = bool(self.options.models)
        tc.generate()
        deps = CMakeDeps(self)
        deps.set_property("opencl-icd-loader", "cmake_file_name", "OpenCL")
        deps.set_property("opencl-icd-loader", "cmake_find_mode", "both")
        deps.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", src=self.source_folder,
             dst=os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        for folder in ("lib/cmake", "lib/pkgconfig", "share"):
            rmdir(self, os.path.join(self.package_folder, folder))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "winattn")
        # of all components; the first one has the usual name
        self.cpp_info.set_property("cmake_target_name", "winattn::all")
        self._add_component("winattn", "winattn")
        if self.settings.os == "Macos":
            self.cpp_info.components["winattn"].frameworks = ["OpenCL"]
        else:
            self.cpp_info.components["winattn"].requires = [
                "opencl-headers::opencl-headers",
                "opencl-icd-loader::opencl-icd-loader"]
        if self.options.models:
            self._add_component("models", "winattn_models")
            self.cpp_info.components["models"].requires = ["winattn",
                                                           "cjson::cjson"]

    def _add_component(self, name, library):
        component = self.cpp_info.components[name]
        component.set_property("cmake_target_name", f"winattn::{name}")
        component.set_property("pkg_config_name", library.replace("_", "-"))
        component.libs = [library]
        if not self.options.shared:
            component.defines = ["WINATTN_STATIC"]
            if self.settings.os == "Windows":
                component.libs = [f"{library}_static"]
            elif self.settings.os in ("Linux", "FreeBSD"):
                component.system_libs = ["m", "pthread"]
