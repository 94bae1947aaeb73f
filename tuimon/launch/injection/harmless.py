"""Functions of the interpreter in which a thread cannot hold the lock of the pending calls."""

#: Functions that take no lock and call nothing that does while it is theirs; a loop of pure Python spends 30 % in them.
HARMLESS = """
    PyLong_FromLong PyLong_FromSsize_t PyLong_AsSsize_t PyLong_AsLong PyFloat_FromDouble PyType_GenericAlloc
    PyType_IsSubtype _PyType_Lookup PyList_Append PyList_New PyTuple_New PyTuple_Pack _PyTuple_FromArray
    PyDict_GetItemWithError PyDict_SetItem PyDict_Next PyDict_Contains PyObject_GetAttr _PyObject_GetMethod
    PyObject_GenericGetAttr _PyObject_GenericGetAttrWithDict _PyObject_GetDictPtr PyObject_GetItem PyObject_SetItem
    PyObject_GetIter PyObject_IsTrue PyObject_RichCompare PyObject_Hash PyObject_GC_Del PyObject_GC_UnTrack
    _PyObject_GC_New PyObject_Malloc PyObject_Free _PyObject_Malloc _PyObject_Free PyMem_Malloc PyMem_Free PyNumber_Add
    PyNumber_Multiply PyNumber_Subtract PyNumber_Index PyNumber_InPlaceAdd PyObject_ClearWeakRefs PySequence_GetItem
    _PyUnicode_FromId PyUnicode_FromFormat PyUnicode_Compare
"""
