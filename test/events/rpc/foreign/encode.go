// Prints an event as Go encodes it, with its fields and the entries of its maps in any order. Usage: encode SET JSON, both files.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// encode encodes the event with lists of numbers that are packed or not.
func encode(packed bool) []byte {
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(must(os.ReadFile(os.Args[1])), set); err != nil {
		panic(err)
	}
	for _, file := range set.File {
		if file.GetName() != "invoice.proto" {
			continue
		}
		for _, message := range file.MessageType {
			for _, field := range message.Field {
				switch field.GetType() {
				case descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, descriptorpb.FieldDescriptorProto_TYPE_STRING:
					continue
				}
				if field.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_REPEATED {
					field.Options = &descriptorpb.FieldOptions{Packed: &packed}
				}
			}
		}
	}
	files := must(protodesc.NewFiles(set))
	found := must(files.FindDescriptorByName("foreign.v1.ForeignInvoice"))
	message := dynamicpb.NewMessage(found.(protoreflect.MessageDescriptor))
	if err := protojson.Unmarshal(must(os.ReadFile(os.Args[2])), message); err != nil {
		panic(err)
	}
	return must(proto.Marshal(message))
}

func main() {
	fmt.Println(string(must(json.Marshal(map[string][]byte{
		"Go":                              encode(true),
		"Go, another time":                encode(true),
		"Go, lists of numbers not packed": encode(false),
	}))))
}
