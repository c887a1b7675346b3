package matio

import "syscall"

// openItself makes [os.OpenFile] open a symbolic link itself, which is no regular file.
const openItself = syscall.FILE_FLAG_OPEN_REPARSE_POINT
